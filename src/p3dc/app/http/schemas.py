"""The shapes of responses."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from p3dc.app.http.bodies import PointShape


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


class MovedPhotos(Changed):
    """The class that was made, if any."""

    id: str | None


class ClassShape(BaseModel):
    """A class."""

    id: str
    name: str


class PhotoShape(BaseModel):
    """A photo; its class is null if it is to be labelled.

    ``asked`` says whether it was ever to be labelled, ``by`` who gave its class, ``key`` its place in its drop.
    """

    id: str
    name: str
    label: str | None = Field(serialization_alias="class")
    asked: bool
    by: Literal["user"] | None
    key: str


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


class OriginalsShape(BaseModel):
    """Whether photos are kept as they are sent, and how many are."""

    keep: bool
    photos: int


class ProjectEntry(BaseModel):
    """A project; counts are null where another process has it open."""

    name: str
    photos: int | None
    classes: int | None
    changed: datetime


class Projects(BaseModel):
    """The projects of a folder; null where the server was started for one project."""

    folder: str | None
    open: str
    projects: list[ProjectEntry]


class OpenedProject(Changed):
    """The project that is open now."""

    open: str


class ProjectShape(Changed):
    """A whole project but its pictures.

    Its priors are those of its "backbone", "none", the "drawn birds" of the example set, or its "own".
    """

    name: str
    kept_in: str | None
    backbone: str
    n_base_classes: int
    priors: str
    reject: float | None
    unknown_below: float | None
    point: PointShape | None
    classes: list[ClassShape]
    photos: list[PhotoShape]
    originals: OriginalsShape
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
    """The label of a photo of the project.

    ``doubt`` is 1 minus the distance between the two largest probabilities; a photo whose ``typicality`` is below the
    threshold is unknown.
    """

    id: str
    doubt: float
    typicality: float


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
    """Why an image has its label, and which it would have at α = β = 0; null where base classes do not pull."""

    alpha: float
    beta: float
    unknown_below: float | None
    cosines: list[ClassCosine]
    neighbours: list[NeighbourShape]
    base_classes: list[Pull] | None
    label_unpulled: str | None


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
    """Labels and map at a point.

    ``order`` lists the photos to be labelled, those whose label would teach most first. It is empty where the point or
    the help of the pile was chosen by the request.
    """

    ready: bool
    hint: str | None = None
    auto: bool
    alpha: float | None = None
    beta: float | None = None
    auto_point: PointShape | None = None
    relevance: float | None = None
    labels: list[PhotoLabel] = []
    order: list[str] = []
    unknown_below: float | None = None
    unknown_chosen: float | None = None
    pile: Pile | None = None
    map: MapShape | None = None
    duplicates: list[tuple[str, str]] = []
    misfiled: list[Misfiled] = []


class Confusion(BaseModel):
    """Examples of each class, in rows, by the class that the others gave them, in columns."""

    classes: list[str] = []
    counts: list[list[int]] = []


class LeaveOneOutShape(Changed):
    """How many examples are labelled correctly by all others; ``asked`` of the ``of`` that can be, where sampled."""

    accuracy: float | None = None
    right: int = 0
    asked: int = 0
    of: int = 0
    sampled: bool = False
    wrong: list[str] = []
    confusion: Confusion = Confusion()
    hint: str | None = None


class Health(BaseModel):
    """Whether the service runs, and what it holds."""

    status: str
    version: str
    backbone: str
    classes: int
    examples: int
