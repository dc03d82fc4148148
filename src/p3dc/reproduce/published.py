"""The numbers of the paper's tables: mean accuracy in percent and, where given, half the width of its interval."""

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple


class Published(NamedTuple):
    """One printed number."""

    mean: float
    interval: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.interval is None else f"{self.mean:.2f} ± {self.interval:.2f}"


CLASSES = {
    "0c951261a87d2ad9": "miniImageNet",  # by WordNet ids
    "fe64218b93bd5690": "miniImageNet",  # by the names of ImageNet's classes
    "01d165fdaa37ccf9": "tieredImageNet",  # by WordNet ids
    "00e56888c5c6bfc9": "CUB",  # by the names of the species
}
"""Data sets of the paper by :func:`class_digest` of their base and novel classes."""

SPLITS = {"miniImageNet": (64, 20), "tieredImageNet": (351, 160), "CUB": (100, 50)}
"""How many base and novel classes each has."""

SELECTED = {
    ("miniImageNet", 1): (0.0, 0.9),
    ("miniImageNet", 5): (0.0, 0.4),
    ("tieredImageNet", 1): (0.0, 1.0),
    ("tieredImageNet", 5): (0.0, 0.3),
    ("CUB", 1): (0.2, 0.4),
    ("CUB", 5): (0.0, 0.4),
}
"""The (α, β) that the paper selected."""

PREFERENCES = ("miniImageNet", "CUB")
"""The data sets that prefer α + β of about 0.9 and about 0.6, as the paper reads its Figure 4."""

_COLUMNS = [(name, n_shot) for name in ("miniImageNet", "tieredImageNet", "CUB") for n_shot in (1, 5)]

_TABLE_1 = {
    "matchingnet": "64.03 0.20 | 76.32 0.16 | 68.50 0.92 | 80.60 0.71 | 73.49 0.89 | 84.45 0.58",
    "protonet": "54.16 0.82 | 73.68 0.65 | 65.65 0.92 | 83.40 0.65 | 72.99 0.88 | 86.64 0.51",
    "relationnet": "52.19 0.83 | 70.20 0.66 | 54.48 0.93 | 71.32 0.78 | 68.65 0.91 | 81.12 0.63",
    "anil": "48.70 1.84 | 63.10 0.92 | 51.67 1.81 | 70.30 0.08 | 50.45 0.97 | 59.60 0.84",
    "leo": "61.76 0.08 | 77.59 0.12 | 66.33 0.15 | 81.44 0.09 | 68.22 0.22 | 78.27 0.16",
    "metaoptnet-svm": "62.64 0.61 | 78.63 0.46 | 65.99 0.72 | 81.56 0.53 | - | -",
    "baseline++": "57.53 0.10 | 72.99 0.43 | 60.98 0.21 | 75.93 0.17 | 70.40 0.81 | 82.92 0.78",
    "negative-cosine": "62.33 0.82 | 80.94 0.59 | - | - | 72.66 0.85 | 89.40 0.43",
    "s2m2": "64.65 0.45 | 83.20 0.30 | 68.12 0.52 | 86.71 0.34 | 80.14 0.45 | 90.99 0.23",
    "simpleshot": "64.29 0.20 | 81.50 0.14 | 71.32 0.22 | 86.66 0.15 | - | -",
    "deepvoro": "66.45 0.44 | 84.55 0.29 | 74.02 0.49 | 88.90 0.29 | 80.98 0.44 | 91.47 0.22",
    "deepvoro++": "68.38 0.46 | 83.27 0.31 | 74.48 0.50 | - | 80.70 0.45 | -",
    "restorenet": "59.28 0.20 | - | - | - | 74.32 0.91 | -",
    "dc": "67.79 0.45 | 83.69 0.31 | 74.24 0.50 | 88.38 0.31 | 79.93 0.46 | 90.77 0.24",
    "mcl-katz": "67.03 | 84.03 | 69.90 | 85.08 | 85.89 | 93.08",
    "tcpr": "68.05 0.41 | 84.51 0.27 | 72.67 0.48 | 87.96 0.31 | - | -",
    "p3dc-0-0": "65.93 0.45 | 84.06 0.30 | 73.56 0.49 | 88.50 0.32 | 81.61 0.43 | 91.36 0.22",
    "p3dc-1-0": "68.41 0.44 | 83.06 0.32 | 74.84 0.49 | 88.01 0.33 | 81.51 0.44 | 90.83 0.24",
    "p3dc-0-1": "68.67 0.44 | 83.64 0.31 | 75.20 0.48 | 88.29 0.33 | 81.58 0.44 | 91.02 0.23",
    "p3dc-third": "68.33 0.44 | 84.19 0.30 | 74.91 0.49 | 88.54 0.32 | 81.75 0.43 | 91.21 0.23",
    "p3dc": "68.68 0.44 | 84.37 0.30 | 75.20 0.48 | 88.67 0.32 | 81.86 0.43 | 91.36 0.23",
}

RIVALS = tuple(key for key in _TABLE_1 if not key.startswith("p3dc"))
"""Rows of Table 1 whose numbers the paper takes from other publications."""

NOT_MADE = "mcl-katz"
"""The one of them that cannot be made: the paper's number is with PSM, which was never released."""

SAME_NETWORK = ("s2m2", "deepvoro", "deepvoro++", "dc", "tcpr")
"""Those of them whose publications use the same network as the paper, S2M2's; the others have one of their own."""

_TABLE_2 = {
    "miniImageNet": {"nn": 47.50, "l2n": 65.93, "cl2n": 65.96, "dc-nearest": 66.23, "p3dc": 68.68},
    "CUB": {"nn": 76.40, "l2n": 81.61, "cl2n": 81.54, "dc-nearest": 79.49, "p3dc": 81.86},
}

WAYS = (5, 7, 9, 11, 13, 15, 20)
_TABLE_3 = {
    "restorenet": (59.56, 50.55, 44.54, 39.98, 36.34, 33.52, 28.48),
    "l2n": (65.93, 57.86, 52.45, 48.25, 44.80, 42.12, 37.06),
    "cl2n": (65.96, 57.69, 52.23, 47.93, 44.36, 41.85, 36.65),
    "p3dc": (68.68, 60.58, 55.03, 50.75, 47.21, 44.43, 39.33),
}

_TABLE_4 = {
    "miniImageNet": {"mean": 84.11, "raw": 84.37},
    "tieredImageNet": {"mean": 88.54, "raw": 88.67},
    "CUB": {"mean": 91.27, "raw": 91.36},
}

TIMES = {"calibrate": 0.027, "classify": 0.002}
"""Seconds for a 5-way 5-shot task, on a 2.70 GHz processor."""


def class_digest(base: Iterable[str], novel: Iterable[str]) -> str:
    """Hash the names of base and of novel classes, whatever their order, case, spacing and leading number."""
    names = [*sorted(map(_plain, base)), "", *sorted(map(_plain, novel))]
    return sha256("\n".join(names).encode()).hexdigest()[:16]


def table_1(data_set: str | None, key: str, n_shot: int) -> Published | None:
    """Look up a row of Table 1."""
    if key not in _TABLE_1 or (data_set, n_shot) not in _COLUMNS:
        return None
    cell = _TABLE_1[key].split("|")[_COLUMNS.index((str(data_set), n_shot))].split()
    return None if cell == ["-"] else Published(*map(float, cell))


def table_2(data_set: str | None, key: str) -> Published | None:
    """Look up a row of Table 2."""
    mean = _TABLE_2.get(str(data_set), {}).get(key)
    return None if mean is None else Published(mean)


def table_3(data_set: str | None, key: str, n_way: int) -> Published | None:
    """Look up a row of Table 3, which covers miniImageNet only."""
    if data_set != "miniImageNet" or key not in _TABLE_3 or n_way not in WAYS:
        return None
    return Published(_TABLE_3[key][WAYS.index(n_way)])


def table_4(data_set: str | None, attention: str) -> Published | None:
    """Look up a row of Table 4."""
    mean = _TABLE_4.get(str(data_set), {}).get(attention)
    return None if mean is None else Published(mean)


def _plain(name: str) -> str:
    return " ".join(re.sub(r"^\d+\.", "", name).lower().replace("_", " ").replace("-", " ").split())
