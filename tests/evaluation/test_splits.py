import numpy as np
import pytest

from p3dc import FeatureSet, Priors
from p3dc.errors import InputError
from p3dc.evaluation.splits import check_disjoint, hold_out
from tests.conftest import make_features


def test_sets_with_common_classes_are_refused(base, validation, novel, priors):
    check_disjoint(base=priors, validation=validation, novel=novel)
    with pytest.raises(InputError, match=r"base and novel share 12 classes: base-0.* and 7 more"):
        check_disjoint(base=priors, novel=base)


def test_numbered_classes_are_told_apart_by_their_rows(validation, novel):
    one, two = FeatureSet(validation.features, validation.labels), FeatureSet(novel.features, novel.labels)
    check_disjoint(validation=one, novel=two, base=Priors([[1.0]]))
    copied = FeatureSet(np.vstack([novel.features[:3], two.features[5:6]]).astype(np.float64), [0, 0, 1, 1])
    with pytest.raises(InputError, match="validation and novel share 4 identical rows"):
        check_disjoint(validation=copied, novel=two)


def test_a_stray_duplicate_is_let_pass(validation, novel):
    rows = np.vstack([validation.features, novel.features[:1]])
    check_disjoint(
        validation=FeatureSet(rows, np.arange(len(rows)) % 4), novel=FeatureSet(novel.features, novel.labels)
    )


@pytest.mark.parametrize(("n_classes", "n_aside"), [(10, 5), (12, 5), (21, 5), (24, 6), (64, 16)])
def test_a_quarter_of_the_base_classes_but_five_at_least_is_held_out(n_classes, n_aside):
    base = make_features(1, n_classes, 3, prefix="base")
    kept, aside = hold_out(base)
    assert len(aside.class_names) == n_aside
    assert set(kept.class_names) | set(aside.class_names) == set(base.class_names)
    check_disjoint(base=kept, validation=aside)
    assert len(kept) + len(aside) == len(base)
    for part in (kept, aside):
        for row, label in zip(part.features, part.labels, strict=True):
            own = base.features[base.labels == base.class_names.index(part.class_names[label])]
            assert (own == row).all(axis=1).any()


def test_too_few_base_classes_cannot_be_held_out():
    with pytest.raises(InputError, match="9 base classes are too few to hold some out. Add validation features"):
        hold_out(make_features(1, 9, 3))
