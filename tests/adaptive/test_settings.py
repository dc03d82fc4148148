import pytest

from p3dc.adaptive.settings import Settings
from p3dc.errors import InputError


def test_weights_that_are_not_given_are_chosen_and_one_that_is_given_stands_alone():
    assert Settings().weights is None
    assert Settings(alpha=0.3).weights == (0.3, 0.0)
    assert Settings(beta=0.9).weights == (0.0, 0.9)
    assert Settings(alpha=0.2, beta=0.3).weights == (0.2, 0.3)


def test_each_space_has_its_scale():
    assert Settings().prior_scale == 10
    assert Settings(space="plain").prior_scale == 1
    assert Settings(scale=0.1).prior_scale == Settings(space="plain", scale=0.1).prior_scale == 0.1


def test_the_plain_space_cannot_choose_weights():
    with pytest.raises(InputError, match="only the whitened space can choose them. Give both"):
        Settings(space="plain").fixed_weights()
    assert Settings(space="plain", beta=0.5).fixed_weights() == (0.0, 0.5)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"alpha": "auto"}, "alpha is 'auto'. It must be a finite number or None"),
        ({"beta": float("nan")}, "beta is nan"),
        ({"alpha": 0.5, "beta": 0.6}, "outside the triangle"),
        ({"scale": -1.0}, "scale is -1.0. It must be a number from 0 to 1,000,000,000, or None"),
        ({"scale": "auto"}, "scale is 'auto'"),
        ({"power": -1}, "power is -1"),
        ({"n_nearest": 0}, "n_nearest is 0"),
        ({"space": "curved"}, "space is 'curved'. It must be one of 'whitened', 'plain'"),
        ({"attention": "loud"}, "attention is 'loud'. It must be one of 'raw', 'unit', 'mean'"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_sentence(parameters, sentence):
    with pytest.raises(InputError, match=sentence):
        Settings(**parameters)


def test_weights_outside_the_triangle_are_there_for_the_asking():
    assert Settings(alpha=0.7, beta=0.7, extrapolate=True).weights == (0.7, 0.7)
