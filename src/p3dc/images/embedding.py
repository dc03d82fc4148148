"""Read and embed images at the same time, in order and in bounded memory."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

import numpy as np
from PIL import Image

from p3dc._arrays import Floats
from p3dc._validation import check_count
from p3dc.images.backbones.backbone import Backbone, n_cores
from p3dc.images.decoding import ImageError
from p3dc.io.store import StoreError

Item = TypeVar("Item")


def embed_images(
    items: Iterable[Item],
    read: Callable[[Item], Image.Image],
    backbone: Backbone,
    *,
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
    batch : int
        Largest number of images in a batch.
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
    ...     preprocessing=SimpleNamespace(prepare=lambda image: np.asarray(image.resize((1, 1)))),
    ...     embed=lambda pixels: pixels.reshape(len(pixels), 3).astype(np.float32),
    ... )
    >>> for name, features in embed_images(["red", "blue"], lambda name: Image.new("RGB", (9, 9), name), colours):
    ...     print(name, features)
    red [255.   0.   0.]
    blue [  0.   0. 255.]
    """
    check_count("batch", batch, 1)
    workers = n_cores() if workers is None else workers
    check_count("workers", workers, 1)
    return _embed(iter(items), read, backbone, batch, workers)


def _embed(
    items: Iterator[Item], read: Callable[[Item], Image.Image], backbone: Backbone, batch: int, workers: int
) -> Generator[tuple[Item, Floats | ImageError], None, None]:
    def prepare(item: Item) -> Floats | ImageError:
        try:
            with raising_image_errors():
                return backbone.preprocessing.prepare(read(item))
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
            rows = iter(backbone.embed(np.stack(pixels)) if pixels else ())
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


def _finite(row: Floats) -> Floats | ImageError:
    if np.isfinite(row).all():
        return row
    return ImageError("Its features are not finite numbers. Look at the image, or leave it out.")
