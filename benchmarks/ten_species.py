"""Label photos of ten species after five of each: one by one, together, and with two species that were not taught.

python -m benchmarks.ten_species PHOTOS, a folder of photos for each species
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from p3dc.images.backbone_priors import backbone_priors
from p3dc.images.backbones.loading import DEFAULT, load_backbone
from p3dc.images.classifier import ImageClassifier
from p3dc.images.examples import read_examples
from p3dc.images.predictions import Prediction
from p3dc.images.sources import ImageFile, list_images

SHOTS = 5
LEFT_OUT = ("Red_legged_Kittiwake", "Ring_billed_Gull")


def main(folder: Path) -> None:
    backbone = load_backbone(DEFAULT)
    files = sorted(list_images(folder), key=lambda file: file.key)
    species = sorted({file.label or "" for file in files})
    of = {name: [file for file in files if file.label == name] for name in species}
    taught, rest = (
        [file for name in species for file in of[name][part]] for part in (slice(SHOTS), slice(SHOTS, None))
    )
    examples, _ = read_examples(taught, backbone)
    classifier = ImageClassifier(backbone, examples, backbone_priors(backbone))
    show("predict", classifier.predict(file.path for file in rest), rest)
    show("label", classifier.label_together([file.path for file in rest]).predictions, rest)
    show("label --equal", classifier.label_together([file.path for file in rest], balance="equal").predictions, rest)

    known = [file for file in rest if file.label not in LEFT_OUT]
    fewer = classifier.with_examples(example for example in examples if example.label not in LEFT_OUT)
    print(f"\nwithout {' and '.join(LEFT_OUT)}")
    show("predict", fewer.predict(file.path for file in known), known)
    together = fewer.label_together([file.path for file in rest])
    found = [one for one, file in zip(together.predictions, rest, strict=True) if file in known]
    show("label", found, known)
    label_of = {str(file.path): file.label for file in rest}
    for group in together.groups:
        names = [label_of[key] for key in group]
        print(
            f"group of {len(group)}: "
            + ", ".join(f"{name} {names.count(name)}" for name in sorted(set(names), key=str))
        )


def show(what: str, predictions: Iterable[Prediction], files: list[ImageFile]) -> None:
    labels = [found.label for found in predictions]
    right = sum(label == file.label for label, file in zip(labels, files, strict=True))
    print(f"{what:<14} {right} of {len(files)} right, {labels.count('unknown')} unknown")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
