"""Thumbnails of the most central photos of clusters."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from p3dc.images.decoding import ImageError, read_image
from p3dc.images.examples import thumbnail
from p3dc.images.sources import ImageFile
from p3dc.priors.prototypes import Priors

LONGEST = 96
"""Longest side of these thumbnails, in pixels."""


def with_thumbnails(priors: Priors, photos: Iterable[ImageFile]) -> Priors:
    """Return priors that keep a thumbnail of each central row whose key is that of a photo."""
    wanted = {row.key for rows in priors.central for row in rows}
    files = [photo for photo in photos if photo.key in wanted]
    with ThreadPoolExecutor() as pool:
        small = dict(zip((file.key for file in files), pool.map(_thumbnail, files), strict=True))
    return priors.with_central(
        [[replace(row, thumbnail=small.get(row.key, row.thumbnail)) for row in rows] for rows in priors.central]
    )


def _thumbnail(file: ImageFile) -> bytes:
    """Make a thumbnail, or nothing of a photo that has become unreadable."""
    try:
        return thumbnail(read_image(file.path, short_side=LONGEST), LONGEST)
    except ImageError:
        return b""
