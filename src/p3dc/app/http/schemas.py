"""The shapes of requests and responses."""

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


class Token(Shape):
    """The token that the server was started with."""

    token: Annotated[str, Field(max_length=1000)]


class ErrorShape(BaseModel):
    """What went wrong: a word for programs and a sentence for people."""

    code: str
    message: str
    failures: list["Failure"] | None = None


class Error(BaseModel):
    """Every error has this shape."""

    error: ErrorShape


class Changed(BaseModel):
    """The revision after a change."""

    revision: int


class NewClass(Changed):
    """The class that was made."""

    id: str


class ClassShape(BaseModel):
    """A class."""

    id: str
    name: str


class PhotoShape(BaseModel):
    """A photo; its class is null if it is to be labelled."""

    id: str
    name: str
    label: str | None = Field(serialization_alias="class")


class Failure(BaseModel):
    """An image that could not be used, and why."""

    name: str
    message: str


class Added(Changed):
    """Photos that were added, and images that could not be."""

    added: list[PhotoShape]
    failures: list[Failure]


class ClassWithExamples(ClassShape):
    """A class and its examples."""

    examples: list[PhotoShape]


class Classes(Changed):
    """All classes."""

    classes: list[ClassWithExamples]


class LimitsShape(BaseModel):
    """Limits: images and bytes of a request, pixels of an image; photos, classes and characters of a name."""

    files: int
    bytes: int
    pixels: int
    photos: int
    classes: int
    name: int


class ProjectShape(Changed):
    """A whole project but its pictures."""

    kept_in: str | None
    backbone: str
    n_base_classes: int
    reject: float | None
    point: PointShape | None
    classes: list[ClassShape]
    photos: list[PhotoShape]
    undo: str | None
    redo: str | None
    limits: LimitsShape


class Label(BaseModel):
    """A label and its runner-up; the runner-up of an unknown image is its likeliest class."""

    label: str
    unknown: bool
    probability: float
    runner_up: str
    runner_up_probability: float


class NamedLabel(Label):
    """The label of an image."""

    name: str


class Labels(BaseModel):
    """The labels of images, in their order, and images that could not be used."""

    predictions: list[NamedLabel]
    failures: list[Failure]


class PhotoLabel(Label):
    """The label of a photo of the project."""

    id: str


class CentralPhoto(BaseModel):
    """A photo near the centre of a cluster, and the address of its thumbnail if it has one."""

    name: str
    thumbnail: str | None


class Pull(BaseModel):
    """A base class and its weight; a cluster has central photos in place of a name that means anything."""

    name: str
    weight: float
    central: list[CentralPhoto]


class NeighbourShape(BaseModel):
    """An example near a photo, and the base classes that pulled it."""

    id: str
    name: str
    label: str
    cosine: float
    base_classes: list[Pull]


class ClassCosine(BaseModel):
    """The cosine to a class."""

    label: str
    cosine: float


class ExplanationShape(NamedLabel):
    """Why an image has its label."""

    alpha: float
    beta: float
    unknown_below: float | None
    cosines: list[ClassCosine]
    neighbours: list[NeighbourShape]
    base_classes: list[Pull] | None


Place = tuple[float, float]


class Moved(BaseModel):
    """An example before and after calibration."""

    id: str
    label: str = Field(serialization_alias="class")
    before: Place = Field(serialization_alias="from")
    after: Place = Field(serialization_alias="to")


class PrototypePlace(BaseModel):
    """The position of a class."""

    label: str = Field(serialization_alias="class")
    at: Place


class QueryPlace(BaseModel):
    """The position of a photo to be labelled."""

    id: str
    at: Place


class MapShape(BaseModel):
    """Everything in two dimensions, from -1 to 1."""

    support: list[Moved]
    prototypes: list[PrototypePlace]
    queries: list[QueryPlace]


class Misfiled(BaseModel):
    """A photo that is nearer to another class."""

    id: str
    nearer_to: str


class Pile(BaseModel):
    """How the photos to be labelled helped.

    ``used`` is how much of the classes comes from them, from 0 to 1. Each of the groups lists ids of photos that look
    like one another and like none of the classes, the most central first.
    """

    used: float
    groups: list[list[str]]


class View(Changed):
    """Labels and map at a point."""

    ready: bool
    hint: str | None = None
    auto: bool
    alpha: float | None = None
    beta: float | None = None
    auto_point: PointShape | None = None
    relevance: float | None = None
    labels: list[PhotoLabel] = []
    pile: Pile | None = None
    map: MapShape | None = None
    duplicates: list[tuple[str, str]] = []
    misfiled: list[Misfiled] = []


class LeaveOneOutShape(Changed):
    """How many examples are labelled correctly by all others."""

    accuracy: float | None
    right: int
    asked: int
    of: int
    wrong: list[str]
    hint: str | None


class Health(BaseModel):
    """Whether the service runs, and what it holds."""

    status: str
    version: str
    backbone: str
    classes: int
    examples: int
