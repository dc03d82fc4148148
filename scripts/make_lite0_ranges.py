"""Measure the ranges that the values of EfficientNet-Lite0 take on photos, for its variant in 8-bit integers.

``python scripts/make_lite0_ranges.py PHOTOS OUT`` draws 200 JPEGs below the folder PHOTOS. The shipped ranges,
``src/p3dc/data/lite0-ranges.json``, are those of Caltech 101.
"""

import random
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from p3dc.images.backbones import efficientnet_lite
from p3dc.images.backbones.efficientnet_lite import LITE0
from p3dc.images.decoding import read_image
from p3dc.io.atomic import write_json

N_PHOTOS = 200
AT_ONCE = 8


def main(photos: Path, out: Path) -> None:
    """Run the network on photos and write the least and the greatest number of each value."""
    model = onnx.load_from_string(efficientnet_lite.load_graph(LITE0))
    clipped = {node.input[0] for node in model.graph.node if node.op_type == "Clip"}
    made = {node.output[0] for node in model.graph.node if node.op_type in ("Conv", "Clip", "Add")}
    names = sorted(made - clipped)
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    paths = random.Random(0).sample(sorted(photos.rglob("*.jpg")), N_PHOTOS)
    how = LITE0.preprocessing
    low, high = np.full(len(names), np.inf), np.full(len(names), -np.inf)
    for start in range(0, N_PHOTOS, AT_ONCE):
        pixels = np.stack([how.prepare(read_image(path)) for path in paths[start : start + AT_ONCE]])
        found = session.run(names, {"pixels": pixels})
        low, high = np.minimum(low, [each.min() for each in found]), np.maximum(high, [each.max() for each in found])
    ranges = {"pixels": [-how.mean[0] / how.scale[0], (255 - how.mean[0]) / how.scale[0]]}
    ranges |= {name: [float(f"{a:.6g}"), float(f"{b:.6g}")] for name, a, b in zip(names, low, high, strict=True)}
    write_json(out, ranges)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
