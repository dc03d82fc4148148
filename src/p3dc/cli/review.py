"""What the commands for photos print and write about a model: its classes, doubtful examples, failed photos."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from p3dc.cli.shared import screen, tell
from p3dc.images.classifier import ImageClassifier
from p3dc.images.sources import readable

MAX_DUPLICATES = 20
"""How many pairs of duplicates are printed."""


def report_failures(failures: Iterable[tuple[str, str]]) -> None:
    """Print each photo that could not be used, and why."""
    for key, why in failures:
        tell(f"{key}: {why}")


def report_skipped(skipped: Counter[str]) -> None:
    """Print how many files were left out because of their endings."""
    if skipped:
        listed = ", ".join(f"{readable(ending) or 'no ending'} {count:,}" for ending, count in skipped.most_common(5))
        tell(f"{skipped.total():,} files that do not end like an image are skipped: {listed}")


def print_review(classifier: ImageClassifier, out: Path) -> None:
    """Print the classes of a model and which of its examples are doubtful."""
    found, console = classifier.review, screen()
    report_failures(classifier.failures)
    listed = ", ".join(f"{name} {count}" for name, count in found.shots.items())
    console.print(f"{len(found.shots)} classes, {sum(found.shots.values())} photos: {listed}")
    for one, two in found.duplicates[:MAX_DUPLICATES]:
        console.print(f"the same photo twice: {one} and {two}")
    if len(found.duplicates) > MAX_DUPLICATES:
        console.print(f"and {len(found.duplicates) - MAX_DUPLICATES:,} more pairs of the same photo")
    for key, label, other in found.misfiled:
        console.print(f"{key} looks more like {other} than like the rest of {label}")
    if classifier.priors is None:
        console.print("there are no base classes, so examples are not calibrated")
    elif found.relevance is not None:
        how = "do not pull" if found.beta == 0 else f"pull with weight {found.beta:.2f}"
        console.print(f"{classifier.priors.kinds} {how} (relevance {found.relevance:+.2f})")
    if classifier.unlabelled_keys:
        for line in describe_pile(classifier):
            console.print(line)
    console.print(f"Model: {out}")


def describe_pile(classifier: ImageClassifier) -> Iterator[str]:
    """Describe how much photos without labels were used, and the groups among them."""
    n_photos, use = len(classifier.unlabelled_keys), classifier.unlabelled_use
    if use is None:
        yield "there are no base classes to compare photos by, so each photo was labelled on its own"
    else:
        yield f"labels of {n_photos:,} photos refined each other (use {use:.2f})"
    for group in classifier.groups:
        listed = ", ".join(group[:3]) + (", …" if len(group) > 3 else "")
        yield f"{len(group)} photos look like one another and like none of your classes: {listed}"


def facts_of(classifier: ImageClassifier) -> dict[str, Any]:
    """Return the same for JSON."""
    found = classifier.review
    return {
        "shots": found.shots,
        "duplicates": [list(pair) for pair in found.duplicates],
        "misfiled": [{"photo": key, "label": label, "nearer_to": other} for key, label, other in found.misfiled],
        "failures": [{"photo": key, "why": why} for key, why in classifier.failures],
        "relevance": found.relevance,
        "beta": found.beta,
        "backbone": {"name": classifier.backbone.name, "digest": classifier.backbone.digest},
    } | (
        {"unlabelled_use": classifier.unlabelled_use, "groups": classifier.groups} if classifier.unlabelled_keys else {}
    )
