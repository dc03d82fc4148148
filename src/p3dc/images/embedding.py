"""Read and embed images at the same time, in order and in bounded memory."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import lru_cache, partial
from itertools import islice
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from p3dc._arrays import Floats
from p3dc._validation import check_count
from p3dc.errors import InputError
from p3dc.images.backbones.backbone import Backbone, n_cores
from p3dc.images.decoding import ImageError
from p3dc.images.preprocessing import Preprocessing
from p3dc.images.views import CENTRE, View, average_views
from p3dc.io.store import StoreError

Item = TypeVar("Item")

BATCH = 32

AT_ONCE = 16
"""Images that a process reads before it hands them over."""

IDLE = 60
"""Seconds after which a process without work ends."""

Crops: TypeAlias = npt.NDArray[np.uint8]
"""What the network sees of an image: the bytes of its views."""


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
    batch: int | None = None,
    workers: int | None = None,
) -> Generator[tuple[Item, Floats | ImageError], None, None]:
    """Embed images: threads read ahead while the backbone works.

    The first batch holds one image and each further batch twice as many, up to ``batch``, so the first result comes
    soon. On an accelerator all batches are whole, because it prepares for each size anew. How images are batched
    depends only on their order, not on the speed of the threads. Closing the iterator stops the threads.

    Parameters
    ----------
    items : iterable
        Images, or what ``read`` takes: paths, for example. Taken at most a batch ahead, or two for each worker.
    read : callable
        Opens an item as upright RGB; called in threads.
    backbone : Backbone
    views : sequence of View
        What of each image to embed; features are averaged over them.
    batch : int, optional
        Largest number of views in a batch, if an image has not more. By default 32, or what an accelerator takes at
        once.
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
    >>> from PIL import Image
    >>> from p3dc.images.backbones.backbone import Backbone
    >>> from p3dc.images.embedding import embed_images
    >>> from p3dc.images.preprocessing import Preprocessing
    >>> class Colours(Backbone):
    ...     name, digest, n_features = "colours", "", 3
    ...     preprocessing = Preprocessing(short_side=1, crop=1, mean=(0, 0, 0), scale=(1, 1, 1))
    ...
    ...     def _embed(self, batch):
    ...         return batch.reshape(len(batch), 3)
    >>> for name, features in embed_images(["red", "blue"], lambda name: Image.new("RGB", (9, 9), name), Colours()):
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
    batch: int | None = None,
    workers: int | None = None,
    processes: bool = False,
) -> Generator[tuple[Item, Embedded | ImageError], None, None]:
    """Embed images as :func:`embed_images` does, and yield the features of each view and, if wanted, feature maps.

    Images are read in threads, or in ``processes``: beside an accelerator, threads of one interpreter are too slow.
    Items and ``read`` are then pickled.
    """
    batch = max(BATCH, backbone.step) if batch is None else batch
    check_count("batch", batch, 1)
    workers = n_cores() if workers is None else workers
    check_count("workers", workers, 1)
    batch = max(1, batch // len(views))
    see = partial(_see, read, backbone.preprocessing, views)
    seen = _read_ahead(iter(items), see, batch, workers, processes)
    return _embed(seen, backbone, maps, batch, batch if backbone.is_accelerated else 1)


def _averaged(
    results: Generator[tuple[Item, Embedded | ImageError], None, None],
) -> Generator[tuple[Item, Floats | ImageError], None, None]:
    with closing(results):
        for item, result in results:
            yield item, result if isinstance(result, ImageError) else result.features


def _see(
    read: Callable[[Item], Image.Image], preprocessing: Preprocessing, views: Sequence[View], items: Sequence[Item]
) -> list[Crops | ImageError]:
    """Read some images and crop their views, each (V, crop, crop, 3)."""
    found: list[Crops | ImageError] = []
    for item in items:
        try:
            with raising_image_errors():
                image = read(item)
                found.append(np.stack([preprocessing.crop_view(image, view) for view in views]))
        except ImageError as error:
            found.append(error)
    return found


def _embed(
    seen: Generator[tuple[Item, Crops | ImageError], None, None], backbone: Backbone, maps: bool, batch: int, size: int
) -> Generator[tuple[Item, Embedded | ImageError], None, None]:
    with closing(seen):
        while now := list(islice(seen, size)):
            crops = [each for _, each in now if not isinstance(each, ImageError)]
            rows = iter(_embed_batch(backbone, np.stack(crops), maps) if crops else ())
            for item, each in now:
                yield item, each if isinstance(each, ImageError) else _finite(next(rows))
            size = min(2 * size, batch)


def _read_ahead(
    items: Iterator[Item],
    see: Callable[[Sequence[Item]], list[Crops | ImageError]],
    batch: int,
    workers: int,
    processes: bool,
) -> Generator[tuple[Item, Crops | ImageError], None, None]:
    """Read images in order, a batch ahead and enough to keep all workers busy."""
    at_once = AT_ONCE if processes else 1
    ahead = max(batch, 2 * at_once * workers)
    waiting: deque[tuple[list[Item], Future[list[Crops | ImageError]]]] = deque()
    with _readers(workers, processes) as pool:
        try:
            while True:
                while len(waiting) * at_once < ahead and (some := list(islice(items, at_once))):
                    waiting.append((some, pool.submit(see, some)))
                if not waiting:
                    return
                some, future = waiting.popleft()
                yield from zip(some, future.result(), strict=True)
        finally:
            for _, future in waiting:
                future.cancel()


@contextmanager
def _readers(workers: int, processes: bool) -> Iterator[Executor]:
    """Start threads that end with the images, or take processes that stay."""
    if processes:
        try:
            yield _processes(workers)
        except BrokenExecutor:
            _processes.cache_clear()
            raise InputError(
                "a process that was reading images was ended, perhaps for lack of memory. Free some memory and start "
                "again."
            ) from None
    else:
        with ThreadPoolExecutor(workers, thread_name_prefix="p3dc-read") as pool:
            yield pool


@lru_cache(maxsize=1)
def _processes(workers: int) -> Executor:
    """Start processes that stay for the next images."""
    from joblib.externals.loky import ProcessPoolExecutor  # its reusable executor is joblib's alone

    pool: Executor = ProcessPoolExecutor(workers, timeout=IDLE)
    return pool


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


def _embed_batch(backbone: Backbone, crops: Crops, with_maps: bool) -> list[Embedded]:
    """Embed some images, (n, V, …), all views at once."""
    n_images = len(crops)
    maps = backbone.embed_maps(backbone.preprocessing.standardize(crops[:, 0])) if with_maps else None
    rest = crops[:, 1:] if with_maps else crops
    rows = backbone.embed_crops(rest.reshape(-1, *rest.shape[2:]))
    views = rows.reshape(n_images, rest.shape[1], backbone.n_features)
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
