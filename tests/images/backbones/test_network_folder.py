"""Folders in the layout of ONNX exports: which file, which output, which pooling, and the last layer."""

import json
import time

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from p3dc import Priors
from p3dc.errors import InputError
from p3dc.images.backbone_priors import backbone_priors
from p3dc.images.backbones.loading import absolute_address, load_backbone
from p3dc.images.backbones.network_folder import choose_network, split_options
from p3dc.images.backbones.onnx_network import PROVIDERS, OnnxBackbone, execution_provider
from p3dc.images.backbones.pooling import choose_output, pool
from tests.conftest import make_features
from tests.images.backbones.test_onnx_network import HOW, model

PROCESSOR = {"size": {"height": 6, "width": 6}, "resample": 2, "image_mean": [0, 0, 0], "image_std": [1, 1, 1]}
ROWS = np.arange(15, dtype=np.float32).reshape(5, 3) ** 0.5


def write_folder(folder, networks, config=(), processor=PROCESSOR):
    (folder / "onnx").mkdir(parents=True)
    for name, content in networks.items():
        (folder / name).write_bytes(content)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    if processor is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def classifying(kind="Gemm", output="logits", dtype=np.float32):
    """A network whose last layer makes five classes of the mean of each colour."""
    weights = ROWS if kind == "Gemm" else ROWS.T
    constants = [numpy_helper.from_array(weights.astype(dtype), "w"), numpy_helper.from_array(np.ones(5, dtype), "b")]
    last = {
        "Gemm": [helper.make_node("Gemm", ["flat", "w", "b"], [output], transB=1)],
        "MatMul": [helper.make_node("MatMul", ["flat", "w"], ["m"]), helper.make_node("Add", ["b", "m"], [output])],
        "Softmax": [helper.make_node("Softmax", ["flat"], [output])],
    }[kind]
    nodes = [
        helper.make_node("GlobalAveragePool", ["pixels"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        *last,
    ]
    element = TensorProto.FLOAT16 if dtype == np.float16 else TensorProto.FLOAT
    pixels = helper.make_tensor_value_info("pixels", element, ["n", 3, 6, 6])
    graph = helper.make_graph(nodes, "g", [pixels], [helper.make_tensor_value_info(output, element, None)], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString()


@pytest.mark.parametrize("kind", ["Gemm", "MatMul"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_features_are_what_the_last_layer_takes_and_its_rows_are_the_head(tmp_path, kind, dtype, rng):
    config = {"id2label": {str(number): name for number, name in enumerate("abcde")}}
    folder = write_folder(tmp_path / "net", {"onnx/model.onnx": classifying(kind, dtype=dtype)}, config)
    backbone = load_backbone(folder)
    pixels = rng.random((9, 3, 6, 6), dtype=np.float32)
    np.testing.assert_allclose(backbone.embed(pixels), pixels.mean(axis=(2, 3)), atol=2e-3)
    head = backbone.head()
    np.testing.assert_allclose(head.rows, ROWS, rtol=1e-3)
    assert head.names == tuple("abcde")


def test_a_plain_file_has_its_head_too_and_another_digest_than_its_bytes(tmp_path):
    backbone = OnnxBackbone(classifying(), HOW)
    assert backbone.n_features == 3
    assert backbone.head().names == ("0", "1", "2", "3", "4")
    assert OnnxBackbone(classifying(output="scores"), HOW).n_features == 5
    assert OnnxBackbone(classifying(output="scores"), HOW).head() is None
    assert OnnxBackbone(classifying("Softmax"), HOW).head() is None


def test_a_head_and_photos_make_priors(tmp_path):
    backbone = OnnxBackbone(classifying(), HOW, name="tiny")
    assert backbone_priors(backbone) is None
    photos = Priors.from_features(make_features(5, 10, 20, n_features=3, prefix="base"))
    priors = backbone_priors(backbone, photos)
    assert len(priors) == 5
    assert priors.geometry.tightness == photos.geometry.tightness
    means = photos.prototypes / photos.geometry.lengths[:, None]
    away, wanted = priors.prototypes - means.mean(axis=0), ROWS - ROWS.mean(axis=0)
    cosines = np.vecdot(away, wanted) / np.linalg.norm(away, axis=1) / np.linalg.norm(wanted, axis=1)
    moved = np.linalg.norm(wanted, axis=1) > 1e-6
    np.testing.assert_allclose(cosines[moved], 1, atol=1e-9)
    other = Priors.from_features(make_features(5, 10, 20, n_features=4, prefix="base"))
    with pytest.raises(InputError, match="the priors have 4 features but tiny gives 3"):
        backbone_priors(backbone, other)


TOKENS = np.random.default_rng(0).normal(size=(2, 17, 5)).astype(np.float32)


@pytest.mark.parametrize(
    ("found", "pooling", "n_patches", "expected"),
    [
        (TOKENS, None, None, TOKENS[:, 0]),
        (TOKENS, None, 16, TOKENS[:, 0]),
        (TOKENS, "mean", None, TOKENS[:, 1:].mean(axis=1)),
        (TOKENS, "mean", 12, TOKENS[:, 5:].mean(axis=1)),
        (TOKENS[:, 1:], None, None, TOKENS[:, 1:].mean(axis=1)),
        (TOKENS[:, 1:], None, 16, TOKENS[:, 1:].mean(axis=1)),
        (TOKENS[:, 1:].reshape(2, 4, 4, 5), None, None, TOKENS[:, 1:].reshape(2, 4, 4, 5).mean(axis=(2, 3))),
        (TOKENS[:, 0], "mean", None, TOKENS[:, 0]),
    ],
)
def test_tokens_and_maps_become_rows(found, pooling, n_patches, expected):
    np.testing.assert_allclose(pool(found, pooling, n_patches), expected)


def test_there_must_be_a_class_token_to_take():
    for found in (TOKENS[:, 1:], TOKENS[:, 1:].reshape(2, 4, 4, 5)):
        with pytest.raises(InputError, match="no class token"):
            pool(found, "cls")


def test_the_image_embedding_comes_first():
    names = ["last_hidden_state", "pooler_output", "image_embeds"]
    assert choose_output(names, None) == "image_embeds"
    assert choose_output(names[:2], None) == "pooler_output"
    assert choose_output(names, "pooler_output") == "pooler_output"
    assert choose_output(["467"], "mean") == "467"
    with pytest.raises(InputError, match="it has the outputs a, b, and none is image_embeds or"):
        choose_output(["a", "b"], None)
    with pytest.raises(InputError, match="none is image_embeds"):
        choose_output(["logits"], "image_embeds")


def test_pooling_is_part_of_the_address_and_of_the_digest(tmp_path, rng):
    nodes = [
        ("Reshape", ["pixels", "shape"], ["last_hidden_state"], {}),
        ("ReduceMean", ["pixels"], ["pooler_output"], {"axes": [2, 3], "keepdims": 0}),
    ]
    shape = helper.make_tensor("value", TensorProto.INT64, [3], [-1, 4, 27])
    nodes.insert(0, ("Constant", [], ["shape"], {"value": shape}))
    network = model(nodes, outputs=("last_hidden_state", "pooler_output"))
    folder = write_folder(tmp_path / "net", {"onnx/model.onnx": network})
    pixels = rng.random((2, 3, 6, 6), dtype=np.float32)
    auto, pooler, mean = (load_backbone(f"{folder}{end}") for end in ("", "#pooler_output", "#mean"))
    assert (auto.n_features, mean.n_features) == (3, 27)
    np.testing.assert_allclose(mean.embed(pixels), pixels.reshape(2, 4, 27).mean(axis=1), rtol=1e-5)
    assert auto.digest == pooler.digest != mean.digest
    assert (auto.name, mean.name) == ("net", "net#mean")


def test_the_file_of_the_images_is_chosen():
    files = ["onnx/model.onnx", "onnx/vision_model.onnx", "onnx/vision_model_quantized.onnx", "model_fp16.onnx"]
    assert choose_network(files, "fp32", "x") == "onnx/vision_model.onnx"
    assert choose_network(files, "int8", "x") == "onnx/vision_model_quantized.onnx"
    assert choose_network(files, "fp16", "x") == "model_fp16.onnx"
    with pytest.raises(InputError, match="x has no network onnx/model_q4.onnx .*Name another variant after a #"):
        choose_network(files, "q4", "x")
    with pytest.raises(InputError, match="it has no .onnx file"):
        choose_network(["config.json"], "fp32", "x")
    with pytest.raises(InputError, match="more than one variant or pooling"):
        split_options("net#fp16,int8")


def test_folders_that_lack_something_are_refused(tmp_path):
    with pytest.raises(InputError, match="net has no preprocessor_config.json"):
        load_backbone(write_folder(tmp_path / "a" / "net", {"onnx/model.onnx": model()}, processor=None))
    folder = write_folder(tmp_path / "b" / "net", {"onnx/model.onnx": model()}, processor=PROCESSOR | {"resample": 7})
    with pytest.raises(InputError, match="net, preprocessor_config.json: its resample is 7"):
        load_backbone(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(InputError, match="net has a config.json that cannot be read"):
        load_backbone(folder)
    with pytest.raises(InputError, match="has 2 inputs"):
        OnnxBackbone(
            model([("Add", ["pixels", "more"], ["features"], {})], inputs=("pixels", "more")), HOW, pooling="auto"
        )


def test_a_folder_cannot_take_the_name_of_a_built_in_network(tmp_path):
    folder = write_folder(tmp_path / "efficientnet-lite1", {"onnx/model.onnx": model()})
    assert load_backbone(folder).name == "efficientnet-lite1/"


def test_addresses_mean_the_same_in_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute_address("efficientnet-lite2") == "efficientnet-lite2"
    assert absolute_address("hf:owner/name#fp16") == "hf:owner/name#fp16"
    assert absolute_address("net#fp16") == str(tmp_path / "net#fp16")


def test_a_device_needs_its_execution_provider():
    cpu = ["CPUExecutionProvider"]
    assert execution_provider("cpu", cpu) == "CPUExecutionProvider"
    assert execution_provider("directml", ["DmlExecutionProvider", *cpu]) == "DmlExecutionProvider"
    with pytest.raises(InputError, match="cannot use openvino here: it has cpu. Install onnxruntime-openvino"):
        execution_provider("openvino", cpu)
    with pytest.raises(InputError, match="there is no device 'tpu'. Choose from cpu, cuda"):
        execution_provider("tpu", cpu)
    with pytest.raises(InputError, match="ONNX Runtime cannot use cuda here"):
        OnnxBackbone(model(), HOW, device="cuda")
    assert OnnxBackbone(model(), HOW, device="cpu").digest == OnnxBackbone(model(), HOW).digest


@pytest.mark.parametrize("device", sorted(PROVIDERS.keys() - {"cpu"}))
def test_each_device_gives_the_features_of_the_processor(device):
    import onnxruntime

    if PROVIDERS[device][0] not in onnxruntime.get_available_providers():
        pytest.skip(f"ONNX Runtime has no {device}")
    here, there = load_backbone(), load_backbone(device=device)
    images = np.random.default_rng(0).normal(0, 0.5, (11, *here.preprocessing.shape)).astype(np.float32)
    expected, found = here.embed(images), there.embed(images)
    lengths = np.linalg.norm(expected, axis=1) * np.linalg.norm(found, axis=1)
    assert ((expected * found).sum(1) / lengths).min() > 0.9999
    assert here.digest == there.digest


def test_openvino_uses_as_many_threads_as_it_may():
    import onnxruntime

    if PROVIDERS["openvino"][0] not in onnxruntime.get_available_providers():
        pytest.skip("ONNX Runtime has no openvino")
    backbone = load_backbone(device="openvino", threads=1)
    images = np.zeros((64, *backbone.preprocessing.shape), np.float32)
    began, used = time.perf_counter(), time.process_time()
    backbone.embed(images)
    assert time.process_time() - used < 1.2 * (time.perf_counter() - began)
