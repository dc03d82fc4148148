"""Which groups are proposed for naming, compared with a plain loop."""

import numpy as np
import pytest

from p3dc.unlabelled.evidence import evidence, expected_length
from p3dc.unlabelled.grouping import inner_products
from p3dc.unlabelled.mixture import ComponentSums
from p3dc.unlabelled.proposals import APART, LEAST_ROWS, centres, propose
from tests.reference import normalize
from tests.unlabelled.test_grouping import make_rows

N_PSEUDO = 10.0


@pytest.fixture
def pile():
    """Three classes with five rows each, groups of twelve, four and two rows of other classes, and a background row."""
    rng, means = np.random.default_rng(3), np.eye(8, 60)
    component = np.repeat([0, 1, 2, 3, 4, 5, 6], [5, 5, 5, 12, 4, 2, 1])
    rows = make_rows(rng, means, component, cosine=0.7)
    sums = ComponentSums(inner_products(means[:3], rows, N_PSEUDO), 3, N_PSEUDO)
    responsibilities = np.equal.outer(component, np.arange(6)).astype(np.float32)
    return means, rows, component, sums, sums.cosines(responsibilities)


def log_bayes_factor(means, rows, component, group, of_class):
    """The evidence that a group and a class are one, less that they are two."""
    group_rows, class_rows = rows[component == group], rows[component == of_class]
    class_sum = class_rows.sum(axis=0) + expected_length(N_PSEUDO) * means[of_class]
    n_group, n_class = len(group_rows), len(class_rows) + N_PSEUDO
    squared = [np.sum(each**2) for each in (group_rows.sum(axis=0), class_sum, group_rows.sum(axis=0) + class_sum)]
    return evidence(n_group + n_class, squared[2]) - evidence(n_group, squared[0]) - evidence(n_class, squared[1])


@pytest.mark.parametrize("per_evidence", [5.0, 15.0, 60.0, 1000.0])
def test_groups_with_enough_evidence_against_every_class_are_proposed(pile, per_evidence):
    means, rows, component, sums, cosines = pile
    members, proposed = propose(sums, component, 6, cosines, per_evidence)
    np.testing.assert_array_equal(members, np.equal.outer(component, [3, 4, 5]))
    for j, group in enumerate((3, 4, 5)):
        nearest = max(log_bayes_factor(means, rows, component, group, c) for c in range(3))
        assert proposed[j] == (-per_evidence * nearest > APART and members[:, j].sum() >= LEAST_ROWS)


def test_more_rows_are_more_evidence(pile):
    _, _, component, sums, cosines = pile
    found = [propose(sums, component, 6, cosines, per_evidence)[1].tolist() for per_evidence in (1.0, 30.0, 1000.0)]
    assert found == [[False, False, False], [True, False, False], [True, True, False]]


def test_a_loose_group_is_not_proposed(pile):
    _, _, component, sums, cosines = pile
    loose = cosines.copy()
    loose[:, 3] = 0.4
    assert propose(sums, component, 6, loose, 1000.0)[1].tolist() == [False, True, False]


def test_without_groups_nothing_is_proposed(pile):
    _, _, _, sums, cosines = pile
    component = np.minimum(np.arange(len(cosines)) % 4, 3)
    members, proposed = propose(sums, component, 3, cosines[:, :3], 1000.0)
    assert (members.shape, proposed.shape) == ((len(cosines), 0), (0,))


def test_centres_are_directions_as_long_as_they_are_known(pile):
    _, rows, component, _, _ = pile
    found = centres(np.equal.outer(component, [3, 5]).astype(float), rows)
    np.testing.assert_allclose(normalize(found)[1], normalize(rows[component == 5].sum(axis=0)[None])[0])
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [12 / (12 + 4), 2 / (2 + 4)])
