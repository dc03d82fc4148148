"""Reading ahead of a backbone."""

import itertools
import os
import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib import Parallel, delayed
from PIL import Image

from p3dc.errors import InputError
from p3dc.images.decoding import ImageError
from p3dc.images.embedding import embed_images, embed_views
from tests.images.test_extraction import Colours


def plain(number):
    return Image.new("RGB", (6, 5), (number % 256, number // 256, 7))


def reading_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("p3dc-read")]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 70), st.integers(1, 40), st.integers(1, 5), st.sets(st.integers(0, 70)))
def test_results_come_in_order_with_failures_in_place(n_items, batch, workers, bad):
    def read(number):
        if number in bad:
            raise ImageError("It is bad.")
        return plain(number)

    results = list(embed_images(range(n_items), read, Colours(), batch=batch, workers=workers))
    assert [item for item, _ in results] == list(range(n_items))
    for number, result in results:
        if number in bad:
            assert isinstance(result, ImageError)
        else:
            assert result.dtype == np.float32
            np.testing.assert_allclose(result[0] * 255, number, atol=1e-3)
    assert not reading_threads()


def test_order_does_not_depend_on_speed():
    def read(number):
        time.sleep(0.01 if number % 7 == 0 else 0)
        return plain(number)

    items = [item for item, _ in embed_images(range(60), read, Colours(), batch=8, workers=6)]
    assert items == list(range(60))


def test_batches_start_small_and_grow():
    backbone = Colours()
    list(embed_images(range(100), plain, backbone, batch=16, workers=2))
    assert backbone.batches == [1, 2, 4, 8, 16, 16, 16, 16, 16, 5]


def test_failures_do_not_shift_batches():
    backbone = Colours()

    def read(number):
        if number in (1, 5):
            raise ImageError("It is bad.")
        return plain(number)

    list(embed_images(range(15), read, backbone, batch=4, workers=2))
    assert backbone.batches == [1, 1, 3, 4, 4]


def test_any_exception_of_an_image_is_its_result():
    def read(number):
        return 1 / number if number == 0 else plain(number)

    first, second = (result for _, result in embed_images([0, 1], read, Colours()))
    assert isinstance(first, ImageError)
    assert "ZeroDivisionError" in str(first)
    assert second.shape == (12,)


def test_features_that_are_not_finite_are_a_failure():
    class Broken(Colours):
        def _embed(self, batch):
            rows = super()._embed(batch).copy()
            rows[rows[:, 0] * 255 < 0.5] = np.nan
            return rows

    results = [result for _, result in embed_images([0, 1, 0], plain, Broken())]
    assert [isinstance(result, ImageError) for result in results] == [True, False, True]
    assert "finite" in str(results[0])


def test_a_broken_backbone_ends_the_work():
    class Broken(Colours):
        def _embed(self, batch):
            raise RuntimeError("no memory on the device")

    with pytest.raises(RuntimeError, match="no memory"):
        list(embed_images(range(9), plain, Broken()))
    assert not reading_threads()


def test_a_broken_source_ends_the_work():
    def items():
        yield from range(3)
        raise InputError("the list broke")

    with pytest.raises(InputError, match="the list broke"):
        list(embed_images(items(), plain, Colours()))
    assert not reading_threads()


def test_an_endless_source_is_read_only_a_little_ahead():
    taken = itertools.count()
    opened = []
    results = embed_images(
        iter(lambda: next(taken), -1),
        lambda number: opened.append(number) or plain(number),
        Colours(),
        batch=4,
        workers=2,
    )
    for done, _ in itertools.islice(results, 500):
        assert max(opened) <= done + 3 * 4
    results.close()
    assert next(taken) < 500 + 3 * 4
    assert not reading_threads()


def test_closing_early_stops_the_threads():
    opened = []

    def read(number):
        opened.append(number)
        time.sleep(0.01)
        return plain(number)

    results = embed_images(range(10_000), read, Colours(), workers=4)
    next(results)
    assert reading_threads()
    results.close()
    assert not reading_threads()
    assert len(opened) < 20


def test_the_first_result_does_not_wait_for_a_batch():
    def read(number):
        time.sleep(0.02)
        return plain(number)

    start = time.perf_counter()
    results = embed_images(range(200), read, Colours(), batch=64, workers=1)
    next(results)
    assert time.perf_counter() - start < 0.6
    results.close()


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"workers": 0}, {"batch": 1.5}])
def test_settings_are_checked_at_once(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        embed_images([], plain, Colours(), **wrong)


def odd_ones_only(number):
    if number % 2 == 0:
        raise ImageError("It is even.")
    return plain(number)


def test_processes_read_as_threads_do():
    """More images than one process reads before it hands them over."""
    here, there = (
        list(embed_views(range(90), odd_ones_only, Colours(), batch=32, workers=2, processes=processes))
        for processes in (False, True)
    )
    assert [item for item, _ in there] == list(range(90))
    for (_, one), (number, other) in zip(here, there, strict=True):
        if number % 2:
            np.testing.assert_array_equal(other.features, one.features)
        else:
            assert str(other) == str(one) == "It is even."
    assert Parallel(n_jobs=2)(delayed(abs)(number) for number in (-1, -2)) == [1, 2], "joblib has its own processes"


def end_the_process(_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_is_named():
    results = embed_views(range(5), end_the_process, Colours(), workers=1, processes=True)
    with pytest.raises(InputError, match="a process that was reading images was ended"):
        list(results)
    assert len(list(embed_views(range(5), plain, Colours(), workers=1, processes=True))) == 5, "others take over"
