"""Folders of base, validation and novel features."""

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np

from p3dc.errors import InputError
from p3dc.evaluation.splits import check_disjoint, hold_out
from p3dc.features import PER_ROW, FeatureSet
from p3dc.priors.prototypes import Priors
from p3dc.reproduce.published import CLASSES, SPLITS, class_digest

NAMES = {
    "base": ("base", "base_features", "train"),
    "validation": ("validation", "val", "val_features", "validation_features"),
    "novel": ("novel", "novel_features", "test"),
}
ENDINGS = (".npz", ".parquet", ".plk", ".pkl", ".pickle", "")


@dataclass(frozen=True, eq=False)
class DataSet:
    """Features to reproduce the paper on."""

    name: str  # of the folder
    base: FeatureSet
    validation: FeatureSet
    novel: FeatureSet
    selection_base: FeatureSet  # the base classes that selection may use: all that are not held out for validation
    held_out: bool  # whether the validation classes are base classes held out
    paper_name: str | None  # the paper's name of the data set, if it is one of the paper's

    @cached_property
    def priors(self) -> Priors:
        """Prototypes of all base classes."""
        return Priors.from_features(self.base)

    @cached_property
    def selection_priors(self) -> Priors:
        """Prototypes of the base classes that selection may use."""
        return Priors.from_features(self.selection_base) if self.held_out else self.priors

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all features and labels."""
        digest = sha256()
        for part in (self.base, self.validation, self.novel):
            digest.update(np.ascontiguousarray(part.features).data)
            digest.update(part.labels.data)
            digest.update(str({name: array.shape for name, array in part.per_row(slice(None)).items()}).encode())
        return digest.hexdigest()[:16]


def load_data_set(folder: Path, known_as: str | None = None) -> DataSet:
    """Read the sets of a folder; without validation classes some base classes are held out for selection.

    A data set is one of the paper's if its classes have the names of the paper's, or if ``known_as`` names it.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder. Give one that holds base, validation and novel features.")
    found = {role: _find(folder, role) for role in NAMES}
    for role in ("base", "novel"):
        if found[role] is None:
            names = ", ".join(NAMES[role])
            raise InputError(
                f"{folder} has no {role} features. Name the file one of {names}, as .npz, .parquet or .plk."
            )
    also = {"base": ("views",), "validation": PER_ROW, "novel": PER_ROW}
    sets = {role: FeatureSet.load(path, also=also[role]) for role, path in found.items() if path is not None}
    check_disjoint(**sets)
    base, held_out = sets["base"], "validation" not in sets
    selection_base, validation = hold_out(base) if held_out else (base, sets["validation"])
    name = folder.resolve().name
    paper_name = _identify(name, base, sets["novel"], known_as)
    return DataSet(name, base, validation, sets["novel"], selection_base, held_out, paper_name)


def _identify(name: str, base: FeatureSet, novel: FeatureSet, known_as: str | None) -> str | None:
    """Return the paper's name of the data set with these classes, or the one that the user gives it."""
    if known_as is None:
        return CLASSES.get(class_digest(base.class_names, novel.class_names))
    paper_name = {title.lower(): title for title in SPLITS}.get(known_as.lower())
    if paper_name is None:
        raise InputError(f"the paper has no data set {known_as!r}. Choose from {', '.join(SPLITS).lower()}.")
    sizes, expected = (len(base.class_names), len(novel.class_names)), SPLITS[paper_name]
    if sizes != expected:
        raise InputError(
            f"{name} has {sizes[0]} base and {sizes[1]} novel classes, but {paper_name} has {expected[0]} and "
            f"{expected[1]}. Leave --as {known_as} out."
        )
    return paper_name


def _find(folder: Path, role: str) -> Path | None:
    for name in NAMES[role]:
        for ending in ENDINGS:
            path = folder / f"{name}{ending}"
            if path.is_file() if ending else path.is_dir():
                return path
    return None
