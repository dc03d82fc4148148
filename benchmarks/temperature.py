"""How the default temperature of ``predict_proba`` was chosen: on validation classes, never on novel ones.

``python -m benchmarks.temperature FOLDER…``, each folder with base.npz and validation.npz. For each it prints the
expected calibration error (15 bins) at several temperatures, with the (α, β) that does best on the validation classes.
"""

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from p3dc import FeatureSet, Priors, sample_tasks, search
from p3dc.adaptive.settings import Settings
from p3dc.confidence.metrics import Reliability
from p3dc.method import Attention, masked_softmax
from p3dc.scoring.task_scorer import task_scorer

TEMPERATURES = (0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1)
SETTINGS: tuple[tuple[int, Attention], ...] = ((1, "raw"), (5, "raw"), (5, "unit"))  # shots, attention


def calibration_error(probabilities: npt.NDArray[np.floating], right: npt.NDArray[np.bool_]) -> float:
    reliability = Reliability()
    reliability.add(probabilities.max(axis=-1), right)
    return reliability.error


def main() -> None:
    print("features, shots, attention, accuracy, then the error at", *TEMPERATURES)
    for folder in map(Path, sys.argv[1:]):
        priors = Priors.from_features(FeatureSet.load(folder / "base.npz"))
        validation = FeatureSet.load(folder / "validation.npz")
        for n_shot, attention in SETTINGS:
            best = search(priors, validation, n_shot=n_shot, attention=attention).best
            tasks = sample_tasks(validation.labels, n_shot=n_shot, n_tasks=500, seed=1)
            settings = Settings(best.alpha, best.beta, space="plain", attention=attention)
            scorer = task_scorer(validation.features, priors, settings)
            cosines = scorer.scores(tasks).reshape(-1, 5)
            right = cosines.argmax(axis=1) == np.tile(np.repeat(np.arange(5), 15), len(tasks))
            errors = [calibration_error(masked_softmax(cosines / t, None), right) for t in TEMPERATURES]
            print(f"{folder.name:>22} {n_shot} {attention:>4} {right.mean():.3f} ", *(f"{e:.3f}" for e in errors))


if __name__ == "__main__":
    main()
