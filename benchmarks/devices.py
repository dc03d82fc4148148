"""Compare devices of ONNX Runtime: images per second, and how near the features are to those of the processor.

``python -m benchmarks.devices PHOTOS --device openvino [DEVICE ...] [--backbone ADDRESS]``, where PHOTOS has a folder
for each class. Rounds that time the devices alternate, and the best of each counts.
"""

import argparse
from pathlib import Path

from benchmarks.networks import features_of, images_per_second
from p3dc.images.backbones.loading import DEFAULT, load_backbone
from p3dc.images.sources import list_folder
from p3dc.method import l2_normalize


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("photos", type=Path)
    parser.add_argument("--device", nargs="+", required=True)
    parser.add_argument("--backbone", default=DEFAULT)
    given = parser.parse_args()
    devices = ["cpu", *given.device]
    backbones = [load_backbone(given.backbone, device=device) for device in devices]
    files = [*list_folder(given.photos)]
    rows = [l2_normalize(features_of(files, backbone).features) for backbone in backbones]
    print(f"{len(files):,} photos")
    for device, found, rate in zip(devices, rows, images_per_second(backbones), strict=True):
        print(f"{device}: {rate:.0f} images per second, cosines of at least {(found * rows[0]).sum(1).min():.7f}")


if __name__ == "__main__":
    main()
