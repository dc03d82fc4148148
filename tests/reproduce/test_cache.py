import pytest

from p3dc.reproduce.cache import Cache


def test_values_are_computed_once_and_after_an_interruption_again(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"a": [1.5, 2.0]}

    def fail():
        raise KeyboardInterrupt

    cache = Cache(tmp_path / "parts", "one")
    with pytest.raises(KeyboardInterrupt):
        cache.get("x", fail)
    assert cache.get("x", compute) == cache.get("x", compute) == {"a": [1.5, 2.0]}
    assert len(calls) == 1
    Cache(tmp_path / "parts", "other settings").get("x", compute)
    assert len(calls) == 2


def test_a_damaged_value_is_computed_again(tmp_path):
    cache = Cache(tmp_path, "one")
    cache.get("x", lambda: 1)
    next(tmp_path.iterdir()).write_text("{")
    assert cache.get("x", lambda: 2) == 2
