"""Models are read and written as by the onnx package."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from p3dc.errors import InputError
from p3dc.images.backbones import onnx_messages as messages
from tests.images.backbones.test_network_folder import classifying
from tests.images.backbones.test_onnx_network import model


@pytest.mark.parametrize("dtype", ["f4", "u1", "i1", "i4", "i8", "f2", "f8"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 1, 5)])
def test_tensors_are_those_of_onnx(rng, dtype, shape):
    values = (rng.normal(size=shape) * 50).astype(dtype)
    written = messages.write_tensor("some", values)
    there = TensorProto.FromString(written)
    assert there.name == "some"
    for found in (numpy_helper.to_array(there), messages.read_array(written, {})):
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, values)
    made = numpy_helper.from_array(values, "some").SerializeToString()
    np.testing.assert_array_equal(messages.read_array(made, {}), values)
    assert made == written or (shape, dtype) == ((), "f4")


def test_numbers_may_stand_in_the_list_of_floats():
    tensor = helper.make_tensor("some", TensorProto.FLOAT, [2, 2], [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(messages.read_array(tensor.SerializeToString(), {}), [[1, 2], [3, 4]])


def test_tensors_that_no_weights_are_give_nothing():
    for kind in (TensorProto.BFLOAT16, TensorProto.STRING):
        assert (
            messages.read_array(TensorProto(data_type=kind, dims=[1], raw_data=b"12").SerializeToString(), {}) is None
        )
    assert messages.read_array(TensorProto(data_type=TensorProto.FLOAT, dims=[1]).SerializeToString(), {}) is None


def test_a_model_is_the_one_that_onnx_makes(rng):
    weights = rng.normal(size=(4, 3, 1, 1)).astype(np.float32)
    window = {"pads": [0, 0, 0, 0], "group": 1, "strides": [1, 1]}
    graph = helper.make_graph(
        [helper.make_node("Conv", ["pixels", "w"], ["maps"], **window)],
        "tiny",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, 6, 6])],
        [helper.make_tensor_value_info("maps", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    opset = [helper.make_opsetid("", messages.OPSET)]
    expected = helper.make_model(graph, opset_imports=opset, ir_version=messages.IR_VERSION).SerializeToString()
    found = messages.write_model(
        "tiny",
        [messages.write_node("Conv", ["pixels", "w"], "maps", **window)],
        [messages.write_tensor("w", weights)],
        [messages.write_value("pixels", shape=["n", 3, 6, 6])],
        [messages.write_value("maps")],
    )
    assert found == expected


def test_a_model_with_another_output_is_otherwise_the_same():
    content = classifying()
    expected = onnx.load_from_string(content)
    del expected.graph.output[:]
    expected.graph.output.append(helper.make_tensor_value_info("flat", TensorProto.FLOAT16, None))
    assert onnx.load_from_string(messages.Model.parse(content).ending_in("flat", messages.FLOAT16)) == expected


def test_nodes_constants_and_outputs_are_read():
    value = numpy_helper.from_array(np.array([1, 2]), "")
    nodes = (("Constant", [], ["c"], {"value": value}), ("GlobalAveragePool", ["pixels"], ["features"], {}))
    found = messages.Model.parse(model(nodes))
    assert [node.operation for node in found.nodes] == ["Constant", "GlobalAveragePool"]
    assert found.makers["features"].inputs == ["pixels"]
    assert found.outputs == ["features"]
    np.testing.assert_array_equal(messages.read_array(found.constants["c"], {}), [1, 2])
    last = messages.Model.parse(classifying()).makers["logits"]
    assert messages.integer_attribute(last, "transB") == 1
    assert messages.integer_attribute(last, "transA") == 0


@pytest.mark.parametrize(
    "damage", [lambda raw: b"", lambda raw: raw[:-3], lambda raw: b"x" * 40, lambda raw: raw + b"\0"]
)
def test_what_is_no_model_is_refused(damage):
    with pytest.raises(InputError, match="not an ONNX model that can be read"):
        messages.Model.parse(damage(model()))


def test_no_network_needs_the_onnx_package(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "net.onnx"
    path.write_bytes(classifying())
    code = """if True:
        import sys
        sys.modules["onnx"] = None
        import numpy as np
        from p3dc.images.backbones.loading import load_backbone
        from p3dc.images.backbones.onnx_network import OnnxBackbone
        from p3dc.images.preprocessing import Preprocessing
        print(load_backbone().n_features)
        how = Preprocessing(8, 6, mean=(0, 0, 0), scale=(1, 1, 1))
        network = OnnxBackbone(sys.argv[1], how, pooling="auto")
        print(network.head().rows.shape, network.embed_maps(np.ones((1, 3, 6, 6))).shape)
    """
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout == "1280\n(5, 3) (1, 36, 3)\n"
    assert done.stderr == ""
