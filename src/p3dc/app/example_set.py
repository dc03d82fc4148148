"""The example set of the page: drawings of five garden birds and of two other things, and base classes for them."""

from importlib.resources import as_file, files
from typing import NamedTuple
from zipfile import ZipFile

from p3dc.images.backbones.backbone import Backbone
from p3dc.images.backbones.efficientnet_lite import LITE0, N_FEATURES
from p3dc.priors.prototypes import Priors

DATA = files("p3dc") / "data"


class ExamplePhoto(NamedTuple):
    """A picture as a WebP file; its label is None if it is to be labelled."""

    name: str
    label: str | None
    content: bytes


def example_set(shots: int = 2) -> list[ExamplePhoto]:
    """Read pictures of five birds, up to five of each, then those to be labelled: two of each bird, two unknown things.

    Examples
    --------
    >>> from p3dc.app.example_set import example_set
    >>> pictures = example_set()
    >>> pictures[2].name, pictures[2].label, len(pictures)
    ('blue tit 1.webp', 'blue tit', 22)
    """
    with (DATA / "example-photos.zip").open("rb") as file, ZipFile(file) as archive:
        entries = ((*entry.rpartition("/"), archive.read(entry)) for entry in archive.namelist())
        pictures = [ExamplePhoto(name, label or None, content) for label, _, name, content in entries]
    return [each for each in pictures if each.label is None or _number(each) <= shots]


def _number(picture: ExamplePhoto) -> int:
    return int(picture.name.removesuffix(".webp").rpartition(" ")[2])


def example_priors() -> Priors:
    """Read 48 other drawn birds, whose features are those of EfficientNet-Lite0.

    They were drawn so that the example set shows what base classes do. Nothing is measured with them.

    Examples
    --------
    >>> from p3dc.app.example_set import example_priors
    >>> example_priors()
    Priors(48 base classes, 1,280 features)
    """
    with as_file(DATA / "example-priors.safetensors") as path:
        return Priors.load(path)


def has_example_priors(backbone: Backbone) -> bool:
    """Return whether :func:`example_priors` are of a backbone; they do not fit even the same network in integers."""
    return backbone.name == LITE0.name and backbone.n_features == N_FEATURES
