import pytest

from p3dc.reproduce.store import Store


def test_values_are_computed_once_and_after_an_interruption_again(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"a": [1.5, 2.0]}

    def fail():
        raise KeyboardInterrupt

    store = Store(tmp_path / "parts", "one")
    with pytest.raises(KeyboardInterrupt):
        store.keep("x", fail)
    assert store.keep("x", compute) == store.keep("x", compute) == {"a": [1.5, 2.0]}
    assert len(calls) == 1
    Store(tmp_path / "parts", "other settings").keep("x", compute)
    assert len(calls) == 2


def test_a_damaged_value_is_computed_again(tmp_path):
    store = Store(tmp_path, "one")
    store.keep("x", lambda: 1)
    next(tmp_path.iterdir()).write_text("{")
    assert store.keep("x", lambda: 2) == 2
