"""Compute features of uploaded images; all requests share the batches of the network."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import IO

import numpy as np

from p3dc._arrays import Array
from p3dc.app.project.store import Picture
from p3dc.images.backbones.backbone import STEP, Backbone, n_cores
from p3dc.images.decoding import ImageError, read_image_file
from p3dc.images.embedding import raising_image_errors
from p3dc.images.examples import thumbnail

PREFETCH = 8 * STEP
"""How many images may be read ahead."""


class Embedder:
    """Reads images in threads and embeds all that wait as one batch; those of too many pixels are refused."""

    def __init__(self, backbone: Backbone, max_pixels: int) -> None:
        self.backbone, self.max_pixels = backbone, max_pixels
        self.n_images = self.n_batches = 0
        self._readers = ThreadPoolExecutor(n_cores(), thread_name_prefix="p3dc-read")
        self._network = ThreadPoolExecutor(1, thread_name_prefix="p3dc-embed")
        self._room = asyncio.Semaphore(PREFETCH)
        self._waiting: asyncio.Queue[tuple[Array, asyncio.Future[Array]]] = asyncio.Queue()
        self._loop: asyncio.Task[None] | None = None

    async def embed(self, file: IO[bytes], *, with_thumbnail: bool = True) -> Picture:
        """Return the features and, if wanted, a thumbnail of an image, or raise an ImageError."""
        self._loop = self._loop or asyncio.create_task(self._run())
        async with self._room:
            running = asyncio.get_running_loop()
            crop, picture = await running.run_in_executor(self._readers, self._read, file, with_thumbnail)
            future: asyncio.Future[Array] = running.create_future()
            self._waiting.put_nowait((crop, future))
            features = await future
        if not np.isfinite(features).all() or not features.any():
            raise ImageError("Its features are not finite numbers or all zeros. Look at the image, or leave it out.")
        return Picture(features, picture)

    def close(self) -> None:
        """Stop the threads."""
        if self._loop is not None:
            self._loop.cancel()
        for pool in (self._readers, self._network):
            pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, file: IO[bytes], with_thumbnail: bool) -> tuple[Array, bytes]:
        preprocessing = self.backbone.preprocessing
        with raising_image_errors():
            image = read_image_file(file, short_side=preprocessing.short_side, max_pixels=self.max_pixels)
            return preprocessing.crop_view(image), thumbnail(image) if with_thumbnail else b""

    def _embed(self, crops: list[Array]) -> Array:
        return self.backbone.embed_crops(np.stack(crops))

    async def _run(self) -> None:
        running = asyncio.get_running_loop()
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < STEP and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            crops = [each for each, _ in batch]
            try:
                rows = await running.run_in_executor(self._network, self._embed, crops)
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            self.n_images, self.n_batches = self.n_images + len(batch), self.n_batches + 1
            for (_, future), features in zip(batch, rows, strict=True):
                if not future.done():
                    future.set_result(features)
