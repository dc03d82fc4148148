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
from p3dc.reproduce.published import SPLITS

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

    @cached_property
    def priors(self) -> Priors:
        """Prototypes of all base classes."""
        return Priors.from_features(self.base)

    @cached_property
    def selection_priors(self) -> Priors:
        """Prototypes of the base classes that selection may use."""
        return Priors.from_features(self.selection_base) if self.held_out else self.priors

    @property
    def paper_name(self) -> str | None:
        """The data set of the paper with these numbers of classes."""
        return SPLITS.get((len(self.base.class_names), len(self.novel.class_names)))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all features and labels."""
        digest = sha256()
        for part in (self.base, self.validation, self.novel):
            digest.update(np.ascontiguousarray(part.features).data)
            digest.update(part.labels.data)
            digest.update(str({name: array.shape for name, array in part.per_row(slice(None)).items()}).encode())
        return digest.hexdigest()[:16]


def load_data_set(folder: Path) -> DataSet:
    """Read the sets of a folder; without validation classes some base classes are held out for selection."""
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
    return DataSet(folder.resolve().name, base, validation, sets["novel"], selection_base, held_out)


def _find(folder: Path, role: str) -> Path | None:
    for name in NAMES[role]:
        for ending in ENDINGS:
            path = folder / f"{name}{ending}"
            if path.is_file() if ending else path.is_dir():
                return path
    return None
