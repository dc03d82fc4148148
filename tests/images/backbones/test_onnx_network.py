import hashlib
from itertools import pairwise

import numpy as np
import pytest
from onnx import TensorProto, helper

from p3dc.errors import InputError
from p3dc.images.backbones.onnx_network import OnnxBackbone
from p3dc.images.preprocessing import Preprocessing

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
    with pytest.raises(InputError, match=f"the model:? .*({sentence})"):
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


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="none.onnx cannot be read"):
        OnnxBackbone(tmp_path / "none.onnx", HOW)


def looping(operator="Loop", times=2**62):
    """A network that does nothing, as often as a number in it says, before it gives the mean of each colour."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["going"]), helper.make_node("Identity", ["x"], ["y"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
        ],
    )
    often = helper.make_tensor("often", TensorProto.INT64, [], [times])
    nodes = [
        ("Constant", [], ["times"], {"value": often}),
        ("GlobalAveragePool", ["pixels"], ["means"], {}),
        (operator, ["times", "", "means"], ["features"], {"body": body}),
    ]
    return model(nodes)


def test_a_network_with_a_loop_is_refused_before_it_runs():
    with pytest.raises(InputError, match="the model: it has a Loop, which may run for ever. Export it without loops"):
        OnnxBackbone(looping(), HOW)


def with_functions(depth, calls=2):
    """A network of functions, each of which calls the next several times."""
    import onnx

    made = onnx.load_from_string(model([("f0", ["pixels"], ["features"], {"domain": "own"})]))
    made.opset_import.append(helper.make_opsetid("own", 1))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    for number in range(depth):
        names = ["a", *(f"b{i}" for i in range(calls - 1)), "z"]
        steps = pairwise(names)
        operator, domain = (f"f{number + 1}", "own") if number < depth - 1 else ("GlobalAveragePool", "")
        nodes = [helper.make_node(operator, [one], [other], domain=domain) for one, other in steps]
        made.functions.append(helper.make_function("own", f"f{number}", ["a"], ["z"], nodes, opsets))
    return made.SerializeToString()


def test_functions_are_run_unless_they_multiply_each_other_without_end(rng):
    pixels = rng.random((2, 3, 6, 6), dtype=np.float32)
    backbone = OnnxBackbone(with_functions(3), HOW)
    np.testing.assert_allclose(backbone.embed(pixels), pixels.mean(axis=(2, 3)), rtol=1e-5)
    with pytest.raises(InputError, match="more than 1,000,000 operators"):
        OnnxBackbone(with_functions(60), HOW)
    with pytest.raises(InputError, match="lie too deep in each other"):
        OnnxBackbone(with_functions(200, calls=1), HOW)
