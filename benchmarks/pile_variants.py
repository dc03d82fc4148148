"""Variants of the rule for unlabelled photos, compared with the rule itself on the same tasks.

``python -m benchmarks.pile_variants DATA [--tasks 200] [--split validation] [--settings NAME ...] [--scenes NAME ...]
[--ways N ...] [--shots K ...] [--variants NAME ...] [--jobs 1]``. The first column of figures has the gains of the rule
over auto, the others the differences of accuracy to the rule, in points, inside the pile and outside it. Behind them
are the share of tasks that lose more than five points to auto inside the pile, the calibration error inside it, and
the AUROC of unknowns. The last rows are averages over the settings.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from scipy.special import gammaln

from benchmarks.pile import (
    SCENES,
    SETTINGS,
    SIZES,
    Case,
    Pile,
    compare_rows,
    difference,
    draw_from,
    load,
    priors_of,
    row,
    run_case,
)
from p3dc import P3DCClassifier
from p3dc._arrays import Array, Labels
from p3dc.adaptive.settings import Settings
from p3dc.adaptive.space import WhitenedSpace, class_averages, members, shrunken_mean, task_centre
from p3dc.adaptive.weights import relevance, typical_shots
from p3dc.classifier.calibrated_support import CalibratedSupport, calibrate_whitened
from p3dc.classifier.refined_support import refine_support
from p3dc.confidence.open_set import known_score
from p3dc.evaluation.executors import run_serially
from p3dc.evaluation.results import TaskScores
from p3dc.evaluation.runners import WithoutPile
from p3dc.method import l2_normalize, masked_softmax
from p3dc.priors.geometry import Geometry
from p3dc.unlabelled import evidence, grouping, mixture, proposals
from p3dc.unlabelled.balance import FEW, _log_unequal, judge_balance
from p3dc.unlabelled.evidence import COHESION, discount, nats
from p3dc.unlabelled.grouping import inner_products
from p3dc.unlabelled.mixture import BACKGROUND, ComponentSums, fit_closed, fit_open, free_energy
from p3dc.unlabelled.proposals import propose
from p3dc.unlabelled.refinement import PSEUDO_CLOSED, PSEUDO_OPEN, Balance, Refinement
from p3dc.unlabelled.shares import EQUAL, UNEQUAL, Offsets, count_rows, offsets_by
from p3dc.unlabelled.temperature import EXPECTED

LONG = 20
"""Rounds after which a mixture hardly changes any more."""


def match_nothing(sums: ComponentSums, responsibilities: Array, *_: Any) -> Array:
    """Leave each component with the class that it grew from."""
    return np.eye(sums.n_way, responsibilities.shape[1])


def trust_all(counts: Array, *_: Any) -> Array:
    """Count every row in full."""
    return counts


def trust_closed(counts: Array, by_support: Array, known: float) -> Array:
    """Count rows in full in the closed mixture, and for four together at most in the open one."""
    return counts if known == 1 else counts / (1 + counts.sum(axis=0) / 4)


def trust_by_class(counts: Array, by_support: Array, known: float) -> Array:
    """Take the agreement of each class instead of that of all together."""
    n_rows = counts.sum(axis=0)
    return counts * discount(n_rows, known * (counts * by_support).sum(axis=0) / np.maximum(n_rows, 1e-12))


def centre_of_groups(support: Array, labels: Labels, rows: Array, groups: Labels, base_mean: Array) -> Array:
    """Move the centre to that of classes and groups, wherever the support is."""
    group_of, everything = np.concatenate([labels, groups]), np.concatenate([support, rows])
    names, counts = np.unique(group_of, return_counts=True)
    means = np.stack([everything[group_of == name].mean(axis=0) for name in names])
    known = counts * COHESION / (counts * COHESION + 1 - COHESION)
    return shrunken_mean(means, base_mean, known / known.sum())[0]


def centre_of_support(support: Array, labels: Labels, rows: Array, groups: Labels, base_mean: Array) -> Array:
    """Leave the centre as it is without a pile."""
    return task_centre(class_averages(members(labels)) @ support, base_mean)


def centre_of_certain_groups(
    support: Array, labels: Labels, rows: Array, groups: Labels, settings: Settings, geometry: Geometry
) -> Array:
    """Let only the classes, and groups that would be proposed for naming, move the centre."""
    own, departure = shrunken_mean(class_averages(members(labels)) @ support, geometry.mean)
    if not departure.any():
        return own
    averages, shots = class_averages(members(labels)), typical_shots(members(labels))
    n_way, held = len(averages), PSEUDO_OPEN * shots
    space = WhitenedSpace(geometry, own)
    found = calibrate_whitened(support, labels, space, settings)
    gram = inner_products(l2_normalize(averages @ found.samples), space.centred(rows), held)
    sums = ComponentSums(gram, n_way, held)
    names = np.concatenate([np.arange(n_way), np.unique(groups[groups >= n_way])])
    belonging = np.equal.outer(groups, names)
    cosines = sums.cosines(belonging.astype(np.float32))
    component = belonging.argmax(axis=1)
    grouped, certain = propose(sums, component, len(names), cosines, nats(held, found.temperature))
    kept = (groups < n_way) | (grouped @ certain)
    return own + departure * (centre_of_groups(support, labels, rows[kept], groups[kept], geometry.mean) - own)


def refine_from_certain_groups(
    support: Array, labels: Labels, rows: Array, geometry: Geometry, settings: Settings, balance: Balance | None
) -> CalibratedSupport:
    """Refine a support as seen from the centre of its classes and of certain groups."""

    def centre(_: Array, __: Labels, ___: Array, groups: Labels, ____: Array) -> Array:
        return centre_of_certain_groups(support, labels, rows, groups, settings, geometry)

    with patch("p3dc.classifier.refined_support.pile_centre", centre):
        return refine_support(support, labels, rows, geometry, settings, balance)


def refine_with_typicality(
    support: Array, labels: Labels, rows: Array, geometry: Geometry, settings: Settings, balance: Balance | None
) -> CalibratedSupport:
    """Lower the cosines to classes whose examples resemble base classes more than those of others.

    Such examples are nearer to the mean of their class, so that its photos have larger cosines, and photos between two
    classes go to it. The best threshold lies halfway between the cosines of both.
    """
    belonging, typicality = members(labels), np.zeros(1)
    averages, shots = class_averages(belonging), typical_shots(belonging)
    unknown = (1 - COHESION) / (1 - COHESION + shots * COHESION)

    def calibrate(*given: Any) -> CalibratedSupport:
        nonlocal typicality
        found = calibrate_whitened(*given)
        assert found.ends is not None
        relevant = np.array([relevance(found.normalised, found.ends[1], own[None]).item() for own in averages])
        typicality = 0.25 * found.beta * unknown * (relevant - relevant.mean())
        return found

    def cosines(sums: ComponentSums, responsibilities: Array) -> Array:
        plain, n_rows = cosines_of(sums, responsibilities), responsibilities[:, : sums.n_way].sum(axis=0)
        plain[:, : sums.n_way] -= typicality * (sums.n_pseudo / (sums.n_pseudo + n_rows))
        return plain

    cosines_of = ComponentSums.cosines
    with (
        patch("p3dc.classifier.refined_support.calibrate_whitened", calibrate),
        patch.object(ComponentSums, "cosines", cosines),
    ):
        found = refine_support(support, labels, rows, geometry, settings, balance)
    assert found.refinement is not None
    refinement, held = found.refinement, PSEUDO_OPEN * shots
    left = typicality * held / (refinement.weights.sum(axis=0) + held)
    offsets = {name: getattr(refinement, name) - left for name in ("offsets", "query_offsets")}
    return replace(found, refinement=replace(refinement, **offsets))


def add_nothing(*_: Any) -> Offsets:
    """Take the classes to be equal and their logits to be right."""
    return lambda logits: np.zeros(logits.shape[1])


def fit_with_shares(
    classifier: P3DCClassifier, examples: Array, labels: Labels, photos: Array, own: Labels, error: float = 0.0
) -> None:
    """Tell the classifier how many photos of each class the pile holds, with errors of their logarithms."""
    counts = np.bincount(own[own >= 0], minlength=len(np.unique(labels)))
    log_shares = np.log(counts + 0.5) + np.random.default_rng(counts).normal(0, error, len(counts))
    log_shares -= log_shares.mean()

    def offsets(logits: Array) -> Array:
        """Return ℓ, less the expected b given ℓ and the counts."""
        found = count_rows(logits)
        unexplained = found.logs - (1 - found.ambiguous) * log_shares
        return log_shares - found.ambiguous * found.error / found.variances[:, 0] * unexplained

    with patch("p3dc.unlabelled.refinement.offsets_by", lambda _: offsets):
        classifier.fit(examples, labels, unlabelled=photos)


def fit_long(sums: ComponentSums, temperature: float, offsets: Offsets, without: int | None = None) -> Array:
    """Fit the closed mixture in twenty rounds, after twenty more in which a class has no rows, if one is given."""
    responsibilities: Array = np.zeros(sums.cross.shape, dtype=np.float32)
    for round_ in range(LONG if without is None else 2 * LONG):
        logits = sums.cosines(responsibilities) / temperature
        if without is not None and round_ < LONG:
            others = np.arange(sums.n_way) != without
            responsibilities = np.zeros_like(responsibilities)
            responsibilities[:, others] = masked_softmax(logits[:, others] + offsets(logits[:, others]), None)
        else:
            responsibilities = masked_softmax(logits + offsets(logits), None)
    return responsibilities.astype(np.float64)


def fit_from_several_starts(sums: ComponentSums, temperature: float, offsets: Offsets) -> Array:
    """Average fits that start from all classes, and without each of them in turn, by their free energies."""
    starts = [None, *range(sums.n_way)] if sums.n_way > 1 else [None]
    found = [fit_long(sums, temperature, offsets, without) for without in starts]
    per_evidence = nats(sums.n_pseudo * PSEUDO_OPEN / PSEUDO_CLOSED, temperature)
    energies = [free_energy(sums, each, per_evidence) + _log_unequal(each.sum(axis=0)) for each in found]
    return np.tensordot(masked_softmax(np.array(energies), None), np.array(found), axes=1)


def anneal(sums: ComponentSums, temperature: float, offsets: Offsets) -> Array:
    """Fit the closed mixture at a temperature that falls from twice its value in the first ten of twenty rounds."""
    responsibilities: Array = np.zeros(sums.cross.shape, dtype=np.float32)
    for factor in np.maximum(np.linspace(2, 0, 21)[:20], 1):
        logits = sums.cosines(responsibilities) / temperature
        responsibilities = masked_softmax((logits + offsets(logits)) / factor, None)
    return responsibilities.astype(np.float64)


def sample(sums: ComponentSums, temperature: float, offsets: Offsets) -> Array:
    """Fit the closed mixture by stochastic expectation–maximisation: the mean of 16 chains from the ninth round on."""
    rng, chains, counted = np.random.default_rng(0), np.zeros((16, *sums.cross.shape)), []
    for round_ in range(LONG):
        for chain in chains:
            logits = sums.cosines(chain) / temperature
            logits += offsets(logits)
            counted += [masked_softmax(logits, None)] if round_ >= 8 else []
            chain[:] = np.equal.outer((logits + rng.gumbel(size=logits.shape)).argmax(axis=1), np.arange(sums.n_way))
    return np.asarray(np.mean(counted, axis=0))


def fit_without_groups(sums: ComponentSums, groups: Array, *others: Any) -> Array:
    """Fit the open mixture with classes and a background alone."""
    return fit_open(sums, sums.n_way + np.arange(len(groups)), *others)


def discriminant(sums: ComponentSums, temperature: float, offsets: Offsets) -> Array:
    """Fit the closed mixture by linear discriminants, which know that means of few rows have smaller cosines.

    A mean of n rows has the expected cosine r to a row of its class. The logits are log n + (r z - r² / 2) / v.
    """
    responsibilities: Array = np.zeros(sums.cross.shape, dtype=np.float32)
    for _ in range(LONG):
        counts, z = responsibilities.sum(axis=0), sums.cosines(responsibilities)
        n_rows = counts + sums.n_pseudo
        r = COHESION * np.sqrt(n_rows / (n_rows * COHESION + 1 - COHESION))
        typical = np.average(r, weights=n_rows)
        logits = (r * z - r**2 / 2) / (typical * temperature) + np.log(counts + 1)
        responsibilities = masked_softmax(logits, None)
    return responsibilities.astype(np.float64)


def penalty_above_background(found: Refinement, rows: Array) -> Array:
    """Take a group of any size for as well known as any other, and ignore cosines below the background."""
    if not len(found.groups):
        return np.zeros(len(rows))
    return 0.5 * ((rows @ l2_normalize(found.groups).T).max(axis=1) - BACKGROUND).clip(min=0)


def known_by_support(found: Refinement, along: Array, cosines: Array, rows: Array) -> Array:
    """Score how surely rows belong to any class by the support alone, which no other class has joined."""
    return known_score(along, found.penalty(rows))


def known_by_pile(found: Refinement, along: Array, cosines: Array, rows: Array) -> Array:
    """Score how surely rows belong to any class by the refined prototypes alone."""
    return known_score(cosines, found.penalty(rows))


def equal_by_counts(sums: ComponentSums, temperature: float, _: float) -> Array:
    """Judge whether classes are exactly equal by their counts alone, as all other hypotheses about their shares."""
    counts = count_rows(sums.cosines(fit_closed(sums, temperature, offsets_by(UNEQUAL))) / temperature)
    return masked_softmax(counts.log_likelihoods(), None if counts.rows.mean() >= FEW else EQUAL == 0)


def spreads_by_free_energy(sums: ComponentSums, temperature: float, per_evidence: float) -> Array:
    """Judge how unequal classes are by free energy too: shares are of a Dirichlet distribution for each variance."""
    posterior, energies = judge_balance(sums, temperature, per_evidence), []
    for hypothesis, concentration in zip(np.eye(len(EQUAL))[1:], (1e6, 10.5, 1.43, 0.34), strict=True):
        found = fit_closed(sums, temperature, offsets_by(hypothesis))
        counts, total = found.sum(axis=0), concentration * sums.n_way
        shares = gammaln(counts + concentration).sum() - sums.n_way * gammaln(concentration)
        shares += gammaln(total) - gammaln(total + len(found))
        energies.append(free_energy(sums, found, per_evidence) + shares)
    spreads = masked_softmax(np.array([-np.inf, *energies]), EQUAL == 0)
    return posterior[0] * EQUAL + (1 - posterior[0]) * spreads


def with_cohesion(squared: float) -> dict[str, Any]:
    ratio = squared / (1 - squared)
    constants = {"COHESION": squared, "RATIO": ratio, "SCALE": ratio / (1 - squared), "BACKGROUND": 0.5 * squared**0.5}
    modules = {"evidence": evidence, "grouping": grouping, "mixture": mixture, "proposals": proposals}
    return {
        f"p3dc.unlabelled.{name}.{constant}": value
        for name, module in modules.items()
        for constant, value in constants.items()
        if hasattr(module, constant)
    }


VARIANTS: dict[str, dict[str, Any]] = {
    "typicality": {"p3dc.classifier.fitted.refine_support": refine_with_typicality},
    "centre of certain groups": {"p3dc.classifier.fitted.refine_support": refine_from_certain_groups},
    "centre of groups": {"p3dc.classifier.refined_support.pile_centre": centre_of_groups},
    "centre of the support": {"p3dc.classifier.refined_support.pile_centre": centre_of_support},
    "temperature as without a pile": {
        "p3dc.unlabelled.refinement.pile_temperature": lambda _, __, temperature: temperature
    },
    "queries see all moves": {"p3dc.unlabelled.refinement._coverage": lambda _: 1.0},
    "offsets are certain": {"p3dc.unlabelled.refinement._softening": lambda _: 1.0},
    "unknown above the background": {"p3dc.unlabelled.refinement.Refinement.penalty": penalty_above_background},
    "known by the support": {"p3dc.unlabelled.refinement.Refinement.known": known_by_support},
    "known by the pile": {"p3dc.unlabelled.refinement.Refinement.known": known_by_pile},
    "nothing is proposed": {"p3dc.unlabelled.proposals.APART": np.inf},
    "proposed from 12 nats": {"p3dc.unlabelled.proposals.APART": 12.0},
    "twenty rounds": {
        "p3dc.unlabelled.refinement.fit_closed": fit_long,
        "p3dc.unlabelled.balance.fit_closed": fit_long,
    },
    "several starts": {"p3dc.unlabelled.refinement.fit_closed": fit_from_several_starts},
    "sampled": {"p3dc.unlabelled.refinement.fit_closed": sample},
    "discriminants": {"p3dc.unlabelled.refinement.fit_closed": discriminant},
    "rows count in full": {"p3dc.unlabelled.refinement._trusted": trust_all},
    "for 4 at most, closed in full": {"p3dc.unlabelled.refinement._trusted": trust_closed},
    "agreement by class": {"p3dc.unlabelled.refinement._trusted": trust_by_class},
    "half are known": {"p3dc.unlabelled.refinement.KNOWN": 1 / 2},
    "three quarters are known": {"p3dc.unlabelled.refinement.KNOWN": 3 / 4},
    "not matched": {"p3dc.unlabelled.refinement.match_components": match_nothing},
    "closed mixture only": {"p3dc.unlabelled.refinement._ramp": lambda *_: 1.0},
    "background without groups": {"p3dc.unlabelled.refinement.fit_open": fit_without_groups},
    "2K pseudo-rows in the closed mixture": {"p3dc.unlabelled.refinement.PSEUDO_CLOSED": 2.0},
    "R² = 0.12": with_cohesion(0.12),
    "R² = 0.3": with_cohesion(0.3),
    "no offsets": {"p3dc.unlabelled.refinement.offsets_by": add_nothing},
    "shares are known": {"benchmarks.pile.Pile.fit": staticmethod(fit_with_shares)},
    "shares are roughly known": {"benchmarks.pile.Pile.fit": staticmethod(partial(fit_with_shares, error=0.4))},
    "surely equal": {"p3dc.unlabelled.refinement.judge_balance": lambda *_: EQUAL},
    "surely unequal": {"p3dc.unlabelled.refinement.judge_balance": lambda *_: UNEQUAL},
    "equal by counts": {"p3dc.unlabelled.refinement.judge_balance": equal_by_counts},
    "equal as likely as not": {"p3dc.unlabelled.balance.RARE": 0.0},
    "spreads by free energy": {"p3dc.unlabelled.refinement.judge_balance": spreads_by_free_energy},
    "cosines to few rows as they are": {
        "p3dc.unlabelled.temperature.expected_cosine": lambda n: np.full_like(n, EXPECTED),
        "p3dc.unlabelled.temperature.EXPECTED_ROWS": 0,
    },
    "errors of variance 0.25": {"p3dc.unlabelled.shares.ERROR": 0.25},
    "errors of variance 1": {"p3dc.unlabelled.shares.ERROR": 1.0},
    "few rows may be equal": {"p3dc.unlabelled.balance.FEW": 0.0},
    "annealed": {"p3dc.unlabelled.refinement.fit_closed": anneal},
    "classes are present by 0.5": {"p3dc.unlabelled.mixture.PRESENT": 0.5, "p3dc.unlabelled.matching.PRESENT": 0.5},
    "classes are present by 0.99": {"p3dc.unlabelled.mixture.PRESENT": 0.99, "p3dc.unlabelled.matching.PRESENT": 0.99},
}


def scores_of(classifier: P3DCClassifier, data: Path, split: str, n_tasks: int, case: Case) -> list[TaskScores]:
    """Return the scores of a classifier inside the pile and outside."""
    features, pile = load(data / SETTINGS[case.setting][0] / f"{split}.npz"), Pile()
    list(run_serially(case.drawing.on(features), lambda: partial(pile.run, classifier, features), n_tasks))
    return [TaskScores.from_batches(each) for each in (pile.inside, pile.outside)]


class Cell(NamedTuple):
    """Differences to another classifier on the same tasks, in points, and what is compared with nothing."""

    inside: float
    interval: float
    outside: float
    lost: float
    calibration_error: float
    auroc: float | None

    def __str__(self) -> str:
        auroc = "" if self.auroc is None else f", AUROC {self.auroc:.3f}"
        gained = f"{self.inside:+.2f} ± {self.interval:.2f}, {self.outside:+.2f}"
        return f"{gained}; {self.lost:.1f} % lost, ECE {self.calibration_error:.3f}{auroc}"


def compare(found: list[TaskScores], than: list[TaskScores], auto: list[TaskScores]) -> Cell:
    inside, outside = (difference(*each) for each in zip(found, than, strict=True))
    lost, scores = difference(found[0], auto[0]).lost, found[0]
    error = scores.calibration_error
    assert error is not None
    auroc = None if scores.auroc is None else float(np.mean(scores.auroc))
    return Cell(100 * inside.mean, 100 * inside.interval, 100 * outside.mean, 100 * lost, error, auroc)


def compare_variants(data: Path, split: str, n_tasks: int, names: list[str], case: Case) -> list[Cell]:
    """Compare the rule with auto and the variants with the rule; nothing where tasks cannot be drawn."""
    classifier = P3DCClassifier(priors_of(data, SETTINGS[case.setting][1]))
    features, drawing = load(data / SETTINGS[case.setting][0] / f"{split}.npz"), case.drawing
    if draw_from(features, drawing) is None:
        return []
    auto = [
        compare_rows({"": WithoutPile(classifier)}, features, each, n_tasks)[""]
        for each in (drawing, replace(drawing, pile_queries="outside"))
    ]
    rule = scores_of(classifier, data, split, n_tasks, case)
    cells = [compare(rule, auto, auto)]
    for name in names:
        with ExitStack() as stack:
            for attribute, value in VARIANTS[name].items():
                stack.enter_context(patch(attribute, value))
            cells.append(compare(scores_of(classifier, data, split, n_tasks, case), rule, auto))
    return cells


def average(cells: Sequence[Cell]) -> Cell:
    """Average over settings."""
    inside, interval, outside, lost, error, auroc = zip(*cells, strict=True)
    areas = [each for each in auroc if each is not None]
    return Cell(
        inside=float(np.mean(inside)),
        interval=float(np.linalg.norm(interval) / len(cells)),
        outside=float(np.mean(outside)),
        lost=float(np.mean(lost)),
        calibration_error=float(np.mean(error)),
        auroc=float(np.mean(areas)) if areas else None,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--split", choices=("validation", "novel"), default="validation")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="NAME")
    parser.add_argument("--scenes", nargs="+", choices=SCENES | SIZES, default=list(SCENES), metavar="NAME")
    parser.add_argument("--ways", nargs="+", type=int, default=[5], metavar="N")
    parser.add_argument("--shots", nargs="+", type=int, default=[1, 5], metavar="K")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    cases = [Case(*each) for each in product(given.settings, given.ways, given.shots, given.scenes)]
    names = ["setting", "ways", "shots", "pile", "rule", *given.variants]
    print(row(*names), "|" + "---|" * len(names), sep="\n", flush=True)
    make = partial(compare_variants, given.data, given.split, given.tasks, given.variants)
    by_scene: dict[tuple[Any, ...], list[list[Cell]]] = {}
    with ProcessPoolExecutor(given.jobs) as pool:
        for case, cells in zip(cases, pool.map(partial(run_case, make), cases), strict=True):
            shown: list[object] = [*cells] or ["too few photos"]
            print(row(*case, *shown), flush=True)
            by_scene.setdefault(case[1:], []).extend([cells] if cells else [])
    for scene, found in by_scene.items():
        if found:
            print(row("mean", *scene, *map(average, zip(*found, strict=True))))


if __name__ == "__main__":
    main()
