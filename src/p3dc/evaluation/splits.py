"""Splits: base classes held out for validation, and the check that sets have no classes in common."""

from itertools import combinations

import numpy as np

from p3dc._validation import listed
from p3dc.classifier.leave_one_out import evenly_spaced
from p3dc.errors import InputError
from p3dc.features import FeatureSet
from p3dc.priors.prototypes import Priors

DUPLICATES = 0.01
"""Share of equal rows that large data sets may have by accident."""

FEWEST_HELD_OUT = 5
"""Classes held out at least: those of one task."""


def hold_out(base: FeatureSet) -> tuple[FeatureSet, FeatureSet]:
    """Split base classes into those that stay and a quarter, at least five, that serve as validation classes."""
    names = [base.class_names[label] for label in np.unique(base.labels)]
    n_classes = len(names)
    if n_classes < 2 * FEWEST_HELD_OUT:
        raise InputError(
            f"there are no validation classes, and {n_classes} base classes are too few to hold some out. "
            "Add validation features."
        )
    held_out = {names[i] for i in evenly_spaced(n_classes, max(FEWEST_HELD_OUT, n_classes // 4))}
    return base.select(sorted(set(names) - held_out)), base.select(sorted(held_out))


def check_disjoint(**sets: FeatureSet | Priors) -> None:
    """Refuse sets that share classes or rows: weights chosen on the test classes say nothing about new classes.

    Names that are only numbers do not identify a class, so for those the rows decide. A few equal rows are accepted,
    since large data sets have duplicates.

    Examples
    --------
    >>> from p3dc import FeatureSet
    >>> from p3dc.evaluation.splits import check_disjoint
    >>> one = FeatureSet([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
    >>> two = FeatureSet([[1.0, 1.0], [0.0, 2.0]], ["wren", "robin"])
    >>> check_disjoint(validation=one, novel=two)
    Traceback (most recent call last):
    ...
    p3dc.errors.InputError: validation and novel share 1 class: wren. Give sets without common classes.
    """
    rows = {name: _rows(classes) for name, classes in sets.items()}
    for one, two in combinations(sets, 2):
        common = sorted(_names(sets[one]) & _names(sets[two]))
        if common:
            kind = "class" if len(common) == 1 else "classes"
            raise InputError(
                f"{one} and {two} share {len(common)} {kind}: {listed(common, 5)}. Give sets without common classes."
            )
        shared = len(rows[one] & rows[two])
        if shared > DUPLICATES * min(len(rows[one]), len(rows[two])):
            raise InputError(f"{one} and {two} share {shared} identical rows. Give sets without common classes.")


def _names(classes: FeatureSet | Priors) -> set[str]:
    return {name for name in classes.class_names if not _is_numeral(name)}


def _is_numeral(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _rows(classes: FeatureSet | Priors) -> set[int]:
    if isinstance(classes, Priors):
        return set()
    return {hash(row.astype(np.float32).tobytes()) for row in classes.features}
