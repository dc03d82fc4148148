import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

from p3dc.errors import InputError
from p3dc.images.backbones.loading import load_backbone
from p3dc.images.backbones.onnx_network import OnnxBackbone
from p3dc.images.preprocessing import EXAMPLE, Preprocessing

HOW = Preprocessing(short_side=8, crop=6, mean=(0, 0, 0), scale=(1, 1, 1))
FREE = ["n", 3, 6, 6]


def model(
    nodes=(("GlobalAveragePool", ["pixels"], ["features"], {}),),
    shape=FREE,
    inputs=("pixels",),
    outputs=("features",),
    kind=TensorProto.FLOAT,
):
    """A network that gives the mean of each colour, unless report otherwise."""
    graph = helper.make_graph(
        [helper.make_node(op, given, made, **options) for op, given, made, options in nodes],
        "tiny",
        [helper.make_tensor_value_info(name, kind, shape) for name in inputs],
        [helper.make_tensor_value_info(name, kind, None) for name in outputs],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString()


def test_a_network_gives_a_row_for_each_image(rng):
    backbone = OnnxBackbone(model(), HOW, name="tiny", threads=1)
    assert backbone.name == "tiny"
    assert backbone.n_features == 3
    assert backbone.preprocessing == HOW
    assert repr(backbone).startswith("OnnxBackbone('tiny', 3 features, digest ")
    for n in (0, 1, 8, 19):
        pixels = rng.random((n, 3, 6, 6), dtype=np.float32)
        features = backbone.embed(pixels)
        assert features.shape == (n, 3)
        assert features.dtype == np.float32
        np.testing.assert_allclose(features, pixels.mean(axis=(2, 3)), rtol=1e-5)


def test_axes_of_length_one_are_dropped_and_others_kept():
    flat = OnnxBackbone(model([("Flatten", ["pixels"], ["features"], {})]), HOW)
    assert flat.n_features == 3 * 6 * 6
    one = model([("ReduceMean", ["pixels"], ["features"], {"axes": [1, 2, 3], "keepdims": 1})])
    with pytest.raises(InputError, match=r"gives float32 of shape \(2,\) for two images"):
        OnnxBackbone(one, HOW)


def test_colours_may_come_last(rng):
    how = Preprocessing(short_side=8, crop=6, mean=(0, 0, 0), scale=(1, 1, 1), layout="NHWC")
    means = model([("ReduceMean", ["pixels"], ["features"], {"axes": [1, 2], "keepdims": 0})], shape=["n", 6, 6, 3])
    pixels = rng.random((2, 6, 6, 3), dtype=np.float32)
    np.testing.assert_allclose(OnnxBackbone(means, how).embed(pixels), pixels.mean(axis=(1, 2)), rtol=1e-5)


def test_the_digest_depends_on_network_and_preprocessing():
    same = {OnnxBackbone(model(), HOW, name=name, threads=threads).digest for name, threads in (("a", 1), ("b", 2))}
    assert len(same) == 1
    other = Preprocessing(short_side=9, crop=6, mean=(0, 0, 0), scale=(1, 1, 1))
    digests = same | {
        OnnxBackbone(model(), other).digest,
        OnnxBackbone(model([("Flatten", ["pixels"], ["features"], {})]), HOW).digest,
    }
    assert len(digests) == 3
    expected = hashlib.sha256(hashlib.sha256(model()).digest() + HOW.to_json().encode()).hexdigest()
    assert same == {expected}


KERNEL = helper.make_tensor("value", TensorProto.FLOAT, [2, 5, 6, 6], [0.0] * 360)
FIVE_COLOURS = [("Constant", [], ["kernel"], {"value": KERNEL}), ("Conv", ["pixels", "kernel"], ["features"], {})]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not an ONNX model"),
        (b"hello", "is not an ONNX model"),
        (model()[:-20], "is not an ONNX model"),
        (model([("NoSuchStep", ["pixels"], ["features"], {})]), "is not an ONNX model"),
        (model(shape=["n", 108]), "input of 2 axes"),
        (model([("Identity", ["pixels"], ["features"], {})], shape=[]), "input of 0 axes"),
        (model(shape=[1, 3, 6, 6]), "takes exactly 1 images at once. Export it with a free first axis"),
        (model(shape=["n", 3, 7, 7]), r"images of shape \(3, 7, 7\), but its preprocessing gives \(3, 6, 6\)"),
        (model(shape=["n", 6, 6, 3]), "Correct its crop or its layout"),
        (model([("Flatten", ["pixels"], ["features"], {})], kind=TensorProto.DOUBLE), r"takes tensor\(double\)"),
        (model([("Identity", ["pixels"], ["features"], {})]), r"gives float32 of shape \(2, 3, 6, 6\) for two images"),
        (model([("Shape", ["pixels"], ["features"], {})], outputs=()), "is not an ONNX model|0 outputs"),
        (
            model([("Add", ["pixels", "more"], ["features"], {})], inputs=("pixels", "more")),
            "2 inputs and 1 outputs",
        ),
        (model(FIVE_COLOURS, shape=["n", "c", "h", "w"]), r"fails on images of shape \(3, 6, 6\)"),
    ],
)
def test_other_models_are_refused_in_a_sentence(content, sentence, capfd):
    with pytest.raises(InputError, match=f"the model .*({sentence})"):
        OnnxBackbone(content, HOW)
    assert capfd.readouterr() == ("", "")


def test_images_of_another_shape_are_refused():
    backbone = OnnxBackbone(model(), HOW, name="tiny")
    for shape in ((3, 6, 6), (2, 3, 6, 5), (2, 6, 6, 3), ()):
        with pytest.raises(InputError, match=r"pixels have shape .*, but tiny takes \(n, 3, 6, 6\)"):
            backbone.embed(np.zeros(shape))


@pytest.mark.parametrize("threads", [0, -1, 1.5])
def test_a_wrong_number_of_threads_is_refused(threads):
    with pytest.raises(InputError, match="threads is"):
        OnnxBackbone(model(), HOW, threads=threads)


def test_a_file_brings_its_preprocessing_along(tmp_path):
    path = tmp_path / "birds.onnx"
    path.write_bytes(model())
    with pytest.raises(InputError, match=r"birds.onnx has no birds.toml next to it(.|\n)*short_side = 256\ncrop"):
        load_backbone(path)
    given = load_backbone(path, HOW)
    lines = 'short_side = 8\ncrop = 6\nmean = [0, 0, 0]\nscale = [1, 1, 1]\ncolours = "RGB"\nlayout = "NCHW"\n'
    (tmp_path / "birds.toml").write_text(lines)
    found = load_backbone(str(path), threads=1)
    assert found.name == given.name == "birds"
    assert found.digest == given.digest
    (tmp_path / "birds.toml").write_text(EXAMPLE)
    with pytest.raises(InputError, match="birds.onnx takes images of shape"):
        load_backbone(path)


def test_names_that_are_no_backbone_are_refused(tmp_path):
    with pytest.raises(InputError, match="there is no backbone 'resnet'. Use 'efficientnet-lite0' or"):
        load_backbone("resnet")
    with pytest.raises(InputError, match="none.onnx is not a file"):
        load_backbone(tmp_path / "none.onnx")
    with pytest.raises(InputError, match="none.onnx cannot be read"):
        OnnxBackbone(tmp_path / "none.onnx", HOW)


def test_importing_loads_no_runtime():
    code = """
import sys
from importlib import import_module
from pathlib import Path
import p3dc.images

root = Path(p3dc.images.__file__).parent
for path in sorted(root.rglob("[a-z]*.py")):
    if path.name != "torch_network.py":
        import_module(".".join(("p3dc.images", *path.relative_to(root).with_suffix("").parts)))
print({"matplotlib", "onnx", "onnxruntime", "pyarrow", "scipy", "sklearn", "torch"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout == "set()\n"


def test_a_network_that_mixes_the_images_of_a_batch_is_refused(tmp_path):
    path = tmp_path / "mixing.onnx"
    mean = [
        ("ReduceMean", ["pixels"], ["mean"], {"axes": [0], "keepdims": 1}),
        ("Sub", ["pixels", "mean"], ["rest"], {}),
    ]
    path.write_bytes(model([*mean, ("Flatten", ["rest"], ["features"], {})]))
    path.with_suffix(".toml").write_text(
        'short_side = 8\ncrop = 6\nmean = [0, 0, 0]\nscale = [255, 255, 255]\ncolours = "RGB"\nlayout = "NCHW"\n'
    )
    with pytest.raises(InputError, match="different features in a batch than by itself"):
        load_backbone(path)


def test_a_network_cannot_take_the_name_of_the_built_in_one(tmp_path):
    path = tmp_path / "efficientnet-lite0.onnx"
    path.write_bytes(model([("Flatten", ["pixels"], ["features"], {})]))
    path.with_suffix(".toml").write_text(
        'short_side = 8\ncrop = 6\nmean = [0, 0, 0]\nscale = [255, 255, 255]\ncolours = "RGB"\nlayout = "NCHW"\n'
    )
    assert load_backbone(path).name == "efficientnet-lite0.onnx"


def test_onnx_runtime_sends_no_telemetry(tmp_path):
    code = "from p3dc.images.backbones.loading import load_backbone; load_backbone()"
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert {path.parts[len(tmp_path.parts)] for path in tmp_path.rglob("*")} <= {"p3dc"}
