"""Images of many requests through one network."""

import asyncio
import io
import threading

import numpy as np
import pytest
from PIL import Image

from p3dc.app.embedder import PREFETCH, Embedder
from p3dc.images.backbones.backbone import STEP
from p3dc.images.decoding import ImageError, NotAnImageError, TooManyPixelsError
from tests.app.conftest import Mosaic, picture


def black():
    written = io.BytesIO()
    Image.new("RGB", (8, 8)).save(written, "PNG")
    return written.getvalue()


BLACK = black()


class Watched(Mosaic):
    """A network that records its batches, waits when asked to, and fails on black."""

    def __init__(self):
        super().__init__()
        self.batches, self.gate = [], threading.Event()
        self.gate.set()

    def _embed(self, batch):
        self.gate.wait(30)
        self.batches.append(len(batch))
        if not batch.any(axis=(1, 2, 3)).all():
            raise RuntimeError("the network fell over")
        return super()._embed(batch)


@pytest.fixture
def network():
    return Watched()


def embed(network, images, max_pixels=10**6, watch=None):
    """Embed images at once, and return what each gave or raised, and the embedder."""

    async def work():
        embedder = Embedder(network, max_pixels)
        try:
            asked = [asyncio.ensure_future(embedder.embed(io.BytesIO(image))) for image in images]
            if watch is not None:
                await watch(embedder, asked)
            return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 60), embedder
        finally:
            embedder.close()

    return asyncio.run(work())


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def alone(image):
    network = Mosaic()
    (found,), _ = embed(network, [image])
    return found.features


def test_images_that_come_together_share_batches_and_keep_their_order(network):
    images = [picture(seed=n, noise=60) for n in range(30)]
    network.gate.clear()

    async def watch(embedder, _):
        await until(lambda: embedder._waiting.qsize() >= 30 - STEP)
        network.gate.set()

    found, embedder = embed(network, images, watch=watch)
    for image, each in zip(images, found, strict=True):
        np.testing.assert_array_equal(each.features, alone(image))
    assert embedder.n_images == 30
    assert embedder.n_batches == len(network.batches) < 10
    assert sum(network.batches) == 30
    assert max(network.batches) == STEP


def test_an_image_that_comes_alone_does_not_wait_for_others(network):
    (found,), embedder = embed(network, [picture()])
    assert found.features.shape == (12,)
    assert (embedder.n_images, embedder.n_batches) == (1, 1)


def test_an_image_that_cannot_be_read_does_not_hurt_the_others(network):
    images = [picture(seed=1), b"<html>", picture(seed=2), b"", picture(size=(2000, 2000)), picture()[:60]]
    found, embedder = embed(network, images)
    assert [type(each).__name__ for each in found] == [
        "Picture",
        "NotAnImageError",
        "Picture",
        "ImageError",
        "TooManyPixelsError",
        "ImageError",
    ]
    assert isinstance(found[1], NotAnImageError)
    assert isinstance(found[4], TooManyPixelsError)
    assert embedder.n_images == 2


def test_a_network_that_fails_tells_all_who_wait_and_goes_on(network):
    network.gate.clear()
    together = []

    async def watch(embedder, _):
        await until(lambda: embedder._loop is not None and embedder._readers._work_queue.empty())
        together.extend(asyncio.ensure_future(embedder.embed(io.BytesIO(each))) for each in (BLACK, picture(), BLACK))
        await until(lambda: embedder._waiting.qsize() == 3)
        network.gate.set()
        await asyncio.wait(together)
        await embedder.embed(io.BytesIO(picture()))

    _, embedder = embed(network, [picture()], watch=watch)
    assert [str(each.exception()) for each in together] == 3 * ["the network fell over"]
    assert network.batches == [1, 3, 1]
    assert (embedder.n_images, embedder.n_batches) == (2, 2)


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_features_that_no_cosine_can_judge_are_refused(value):
    class Odd(Mosaic):
        def _embed(self, batch):
            return np.full((len(batch), 12), value, dtype=np.float32)

    (found,), _ = embed(Odd(), [picture()])
    assert isinstance(found, ImageError)
    assert "not finite numbers or all zeros" in str(found)


def test_only_so_many_images_are_read_ahead(network, monkeypatch):
    opened = []
    real = Embedder._read

    def counted(self, file, small):
        opened.append(file)
        return real(self, file, small)

    monkeypatch.setattr(Embedder, "_read", counted)
    network.gate.clear()

    async def watch(embedder, _):
        await until(lambda: embedder._waiting.qsize() >= PREFETCH - STEP)
        await asyncio.sleep(0.1)
        assert len(opened) == PREFETCH
        network.gate.set()

    found, _ = embed(network, [picture(seed=n) for n in range(PREFETCH + 40)], watch=watch)
    assert len(opened) == len(found) == PREFETCH + 40


def test_who_stops_waiting_does_not_stop_the_others(network):
    network.gate.clear()

    async def watch(embedder, asked):
        await until(lambda: embedder._waiting.qsize() >= 4)
        for each in asked[::2]:
            each.cancel()
        network.gate.set()

    found, _ = embed(network, [picture(seed=n) for n in range(12)], watch=watch)
    assert all(isinstance(each, asyncio.CancelledError) for each in found[::2])
    assert all(each.features.any() for each in found[1::2])


def test_the_small_picture_is_a_jpeg_of_the_image(network):
    (found,), _ = embed(network, [picture((30, 140, 140), noise=0, size=(400, 200))])
    small = Image.open(io.BytesIO(found.thumbnail))
    assert (small.format, small.size) == ("JPEG", (160, 80))
    np.testing.assert_allclose(small.getpixel((80, 40)), (30, 140, 140), atol=4)
