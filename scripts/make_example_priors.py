"""Learn the base classes of the example set: 48 birds that are none of its five, twelve drawings of each.

``python scripts/make_example_priors.py`` writes ``src/p3dc/data/example-priors.safetensors``. ImageNet's photos do not
resemble drawings, and these birds do. They were made for the example set, to show on drawings what base classes do for
photos; nothing is measured with them.
"""

import io
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import NamedTuple

import numpy as np
from make_example_photos import OUT, Plumage, as_file, draw_bird
from PIL import Image

from p3dc import Priors
from p3dc.images.backbones.loading import load_backbone
from p3dc.images.decoding import read_image_file
from p3dc.images.embedding import embed_images
from p3dc.io.safetensors import write_arrays
from p3dc.priors.prototypes import VERSION

N_SPECIES = 48
N_DRAWINGS = 12
COLOURS = {
    "brown": "#975",
    "umber": "#864",
    "orange": "#e63",
    "azure": "#48d",
    "moss": "#8a6",
    "teal": "#2ab",
    "red": "#c33",
    "navy": "#224",
    "yellow": "#fd4",
    "cream": "#fed",
    "grey": "#678",
    "violet": "#a5a",
    "green": "#5a8",
    "pink": "#caa",
    "white": "#fff",
    "black": "#433",
    "amber": "#d84",
    "blue": "#26a",
    "olive": "#795",
    "sand": "#bb8",
}
BILLS = ("#433", "#345", "#f83", "#223", "#dc4")
CRESTS = (0, 0, 0, 8, 16)
HALVED = ("prototypes", "axes")
"""Arrays that are written in half precision, as those of the other geometries are."""


class Drawing(NamedTuple):
    """A drawing of a species: the season is that of its place."""

    name: str
    coat: Plumage
    seed: str
    place: int


def main() -> None:
    """Draw all species, embed the drawings and write their means and how they scatter."""
    found = [(each.name, features) for each, features in embed_images(all_drawings(), read, load_backbone())]
    priors = Priors.from_features((np.stack([features for _, features in found]), [name for name, _ in found]))
    arrays, facts = priors.to_arrays()  # without what only merging needs
    small = {name: each.astype(np.float16) if name in HALVED else each for name, each in arrays.items()}
    write_arrays(OUT.with_name("example-priors.safetensors"), "priors", VERSION, small, facts)


def read(drawing: Drawing) -> Image.Image:
    """Draw a bird, and read the drawing as a photo is read."""
    return read_image_file(io.BytesIO(as_file(draw_bird(drawing.coat, drawing.seed, drawing.place))))


def all_drawings() -> Iterator[Drawing]:
    """Yield the drawings of each species."""
    for n, (name, coat) in enumerate(species().items()):
        for k in range(N_DRAWINGS):
            yield Drawing(name, coat, f"{n} {k}", k + 2 * n)


def species() -> dict[str, Plumage]:
    """Return plumages at random, by their names; no two have the same cap and breast."""
    found: dict[str, Plumage] = {}
    numbers = count()
    while len(found) < N_SPECIES:
        name, coat = plumage(Random(f"species {next(numbers)}"))
        found.setdefault(name, coat)
    return found


def plumage(rng: Random) -> tuple[str, Plumage]:
    """Choose the colours and lengths of a bird, and name it after its cap and breast."""
    names = [rng.choice(list(COLOURS)) for _ in range(8)]
    bill, stripe = rng.choice(BILLS), rng.choice(list(COLOURS))
    lengths = rng.uniform(5, 24), rng.uniform(14, 30), rng.choice(CRESTS)
    coat = Plumage(*(COLOURS[name] for name in names), bill, COLOURS[stripe], *lengths)
    _, cap, _, _, breast, *_ = names
    return f"{cap}-capped, {breast}-breasted bird", coat


if __name__ == "__main__":
    main()
