"""Read and embed images at the same time, in order and in bounded memory."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np
from PIL import Image

from p3dc._arrays import Floats
from p3dc._validation import check_count
from p3dc.images.backbones.backbone import Backbone, n_cores
from p3dc.images.decoding import ImageError
from p3dc.images.views import CENTRE, View, average_views
from p3dc.io.store import StoreError

Item = TypeVar("Item")


class Embedded(NamedTuple):
    """The features of a photo.

    Attributes
    ----------
    features : array of shape (n_features,)
        Averaged over its views.
    views : array of shape (n_views, n_features)
        The features of each view.
    maps : array of shape (n_positions, n_features) or None
        The feature maps of the first view.
    """

    features: Floats
    views: Floats
    maps: Floats | None = None


def embed_images(
    items: Iterable[Item],
    read: Callable[[Item], Image.Image],
    backbone: Backbone,
    *,
    views: Sequence[View] = (CENTRE,),
    batch: int = 32,
    workers: int | None = None,
) -> Generator[tuple[Item, Floats | ImageError], None, None]:
    """Embed images: threads read ahead while the backbone works.

    The first batch holds one image and each further batch twice as many, up to ``batch``, so the first result comes
    soon. How images are batched depends only on their order, not on the speed of the threads. Closing the iterator
    stops the threads.

    Parameters
    ----------
    items : iterable
        Images, or what ``read`` takes: paths, for example. Taken at most two batches ahead.
    read : callable
        Opens an item as upright RGB; called in threads.
    backbone : Backbone
    views : sequence of View
        What of each image to embed; features are averaged over them.
    batch : int
        Largest number of views in a batch, if an image has not more.
    workers : int, optional
        Number of threads that read. By default one for each core.

    Yields
    ------
    item : object
        Each item, in the given order.
    result : array of shape (n_features,) or ImageError
        Its features, or the reason why it has none.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> from PIL import Image
    >>> from p3dc.images.embedding import embed_images
    >>> colours = SimpleNamespace(
    ...     n_features=3,
    ...     preprocessing=SimpleNamespace(prepare=lambda image, view: np.asarray(image.resize((1, 1)))),
    ...     embed=lambda pixels: pixels.reshape(len(pixels), 3).astype(np.float32),
    ... )
    >>> for name, features in embed_images(["red", "blue"], lambda name: Image.new("RGB", (9, 9), name), colours):
    ...     print(name, features)
    red [255.   0.   0.]
    blue [  0.   0. 255.]
    """
    results = embed_views(items, read, backbone, views=views, batch=batch, workers=workers)
    return _averaged(results)


def embed_views(
    items: Iterable[Item],
    read: Callable[[Item], Image.Image],
    backbone: Backbone,
    *,
    views: Sequence[View] = (CENTRE,),
    maps: bool = False,
    batch: int = 32,
    workers: int | None = None,
) -> Generator[tuple[Item, Embedded | ImageError], None, None]:
    """Embed images as :func:`embed_images` does, and yield the features of each view and, if wanted, feature maps."""
    check_count("batch", batch, 1)
    workers = n_cores() if workers is None else workers
    check_count("workers", workers, 1)
    return _embed(iter(items), read, backbone, views, maps, max(1, batch // len(views)), workers)


def _averaged(
    results: Generator[tuple[Item, Embedded | ImageError], None, None],
) -> Generator[tuple[Item, Floats | ImageError], None, None]:
    with closing(results):
        for item, result in results:
            yield item, result if isinstance(result, ImageError) else result.features


def _embed(
    items: Iterator[Item],
    read: Callable[[Item], Image.Image],
    backbone: Backbone,
    views: Sequence[View],
    maps: bool,
    batch: int,
    workers: int,
) -> Generator[tuple[Item, Embedded | ImageError], None, None]:
    def prepare(item: Item) -> Floats | ImageError:
        try:
            with raising_image_errors():
                image = read(item)
                return np.stack([backbone.preprocessing.prepare(image, view) for view in views])
        except ImageError as error:
            return error

    pool = ThreadPoolExecutor(workers, thread_name_prefix="p3dc-read")
    waiting: deque[tuple[Item, Future[Floats | ImageError]]] = deque()
    size = 1
    try:
        while True:
            ahead = size + max(batch, workers) - len(waiting)
            waiting.extend((item, pool.submit(prepare, item)) for item in islice(items, ahead))
            if not waiting:
                return
            now = [waiting.popleft() for _ in range(min(size, len(waiting)))]
            prepared = [future.result() for _, future in now]
            pixels = [each for each in prepared if not isinstance(each, ImageError)]
            rows = iter(_embed_batch(backbone, np.stack(pixels), maps) if pixels else ())
            for (item, _), each in zip(now, prepared, strict=True):
                yield item, each if isinstance(each, ImageError) else _finite(next(rows))
            size = min(2 * size, batch)
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def raising_image_errors() -> Iterator[None]:
    """Turn any exception into an :class:`ImageError`, so that one bad image does not end the work on the others.

    A store that cannot be used ends it: the image may be good.
    """
    try:
        yield
    except (ImageError, StoreError):
        raise
    except Exception as error:
        raise ImageError(f"It cannot be prepared ({type(error).__name__}: {error}). Save it again.") from None


def _embed_batch(backbone: Backbone, pixels: Floats, with_maps: bool) -> list[Embedded]:
    """Embed some images, (n, V, …), all views at once."""
    n_images = len(pixels)
    maps = backbone.embed_maps(pixels[:, 0]) if with_maps else None
    rest = pixels[:, 1:] if with_maps else pixels
    views = backbone.embed(rest.reshape(-1, *rest.shape[2:])).reshape(n_images, rest.shape[1], backbone.n_features)
    if maps is not None:
        views = np.concatenate([maps.mean(axis=1, keepdims=True), views], axis=1)
    return [
        Embedded(*each)
        for each in zip(average_views(views), views, [None] * n_images if maps is None else maps, strict=True)
    ]


def _finite(found: Embedded) -> Embedded | ImageError:
    if np.isfinite(found.views).all():
        return found
    return ImageError("Its features are not finite numbers. Look at the image, or leave it out.")
