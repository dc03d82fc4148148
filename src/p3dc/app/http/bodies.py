"""The shapes of requests."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Weight = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Name = Annotated[str, Field(max_length=1000)]


class Shape(BaseModel):
    """A request; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PointShape(Shape):
    """α and β: none below 0, together at most 1."""

    alpha: Weight
    beta: Weight


class Threshold(Shape):
    """From what typicality on a photo belongs to one of the classes; null to choose it for the task."""

    below: Annotated[float, Field(ge=-10, le=10, allow_inf_nan=False)] | None


class NewName(Shape):
    """A name for a class."""

    name: Name


class PhotoChange(Shape):
    """A class to move a photo to, null for those to be labelled; or a new name; or both."""

    label: str | None = Field(default=None, alias="class")
    name: Name | None = None


class NewClassBody(NewName):
    """A name for a class, and the ids of photos that become its examples."""

    photos: list[str] = []


class Move(Shape):
    """A photo and the class that it moves to, null for those to be labelled."""

    id: str
    label: str | None = Field(alias="class")


class Moves(Shape):
    """Photos to move; with a new class, those whose class is null become its examples."""

    moves: Annotated[list[Move], Field(min_length=1, max_length=2000)]
    new_class: Name | None = None


class Deletions(Shape):
    """Photos to delete."""

    ids: Annotated[list[str], Field(min_length=1, max_length=2000)]


class Token(Shape):
    """The token that the server was started with."""

    token: Annotated[str, Field(max_length=1000)]


class Keep(Shape):
    """Whether photos are kept as they are sent."""

    keep: bool


class ProjectName(Shape):
    """The name of a project."""

    name: Name
