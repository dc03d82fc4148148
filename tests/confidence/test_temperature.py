import pytest

from p3dc.confidence.temperature import temperature


def test_the_temperature_falls_with_the_shots_to_a_limit():
    assert temperature(1, whitened=True) == pytest.approx(0.0725)
    assert temperature(5, whitened=True) == pytest.approx(0.0545)
    assert temperature(1, whitened=True) > temperature(1.5, whitened=True) > temperature(20, whitened=True) > 0.05
    assert temperature(1, whitened=False) == temperature(20, whitened=False) == 0.03
