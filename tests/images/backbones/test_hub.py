"""Networks of the Hugging Face Hub, fetched by its own client from a server on this machine."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from p3dc.errors import InputError
from p3dc.images.backbones.hub import fetch_network
from p3dc.images.backbones.loading import load_backbone
from tests.images.backbones.hub_server import COMMIT, OTHER, Hub
from tests.images.backbones.test_onnx_network import model

PROCESSOR = {"size": {"height": 6, "width": 6}, "resample": 2, "image_mean": [0, 0, 0], "image_std": [1, 1, 1]}
NOWHERE = "http://127.0.0.1:9"


def with_external_weights(tmp_path):
    """A network whose weights lie in a file of their own."""
    weights = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "weights")
    nodes = [
        helper.make_node("GlobalAveragePool", ["pixels"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["image_embeds"]),
    ]
    pixels = helper.make_tensor_value_info("pixels", 1, ["n", 3, 6, 6])
    graph = helper.make_graph(nodes, "g", [pixels], [helper.make_tensor_value_info("image_embeds", 1, None)], [weights])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = {"save_as_external_data": True, "location": "model.onnx_data", "size_threshold": 0}
    onnx.save_model(made, tmp_path / "model.onnx", **options)
    return {f"onnx/{name}": (tmp_path / name).read_bytes() for name in ("model.onnx", "model.onnx_data")}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    settings = {"config.json": b"{}", "preprocessor_config.json": json.dumps(PROCESSOR).encode()}
    other = [("Flatten", ["pixels"], ["features"], {})]
    served = Hub(settings | {"onnx/model.onnx": model(), "onnx/model_fp16.onnx": model(other), "weights.bin": b"x"})
    served.other = settings | with_external_weights(tmp_path_factory.mktemp("external"))
    yield served
    served.shutdown()
    served.server_close()


CODE = """
import sys
from p3dc.errors import InputError
from p3dc.images.backbones.loading import load_backbone
try:
    found = load_backbone(sys.argv[1])
    print(found.name, found.n_features, found.digest)
except InputError as error:
    print(error)
"""


def start(hub, home, address, **environment):
    environment = os.environ | {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home)} | environment
    command = [sys.executable, "-c", CODE, address]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    said, errors = process.communicate(timeout=120)
    assert errors == ""
    assert said.count("\n") == 1
    return said.strip()


def load(*arguments, **environment):
    return finish(start(*arguments, **environment))


@pytest.fixture(scope="module", autouse=True)
def unreachable(hub, tmp_path_factory):
    """A fetch without a connection: the client tries again and again, so it starts before the other tests."""
    process = start(hub, tmp_path_factory.mktemp("empty"), "hf:owner/tiny", HF_ENDPOINT=NOWHERE)
    yield process
    process.kill()
    process.communicate()


def test_a_repository_is_fetched_once_and_then_needs_no_connection(hub, tmp_path):
    first = load(hub, tmp_path, "hf:owner/tiny")
    assert first.startswith("hf:owner/tiny 3 ")
    assert not [path for _, path in hub.asked if path.endswith(("weights.bin", "_fp16.onnx"))]
    n_fetched = sum(command == "GET" and "/resolve/" in path for command, path in hub.asked)
    runs = [start(hub, tmp_path, "hf:owner/tiny"), start(hub, tmp_path, "hf:owner/tiny", HF_ENDPOINT=NOWHERE)]
    assert [finish(run) for run in runs] == [first, first]
    assert sum(command == "GET" and "/resolve/" in path for command, path in hub.asked) == n_fetched


def test_variants_and_revisions_are_other_networks(hub, tmp_path):
    addresses = ["hf:owner/tiny", "hf:owner/tiny#fp16", "hf:owner/tiny@other"]
    found = [finish(run) for run in [start(hub, tmp_path / str(n), name) for n, name in enumerate(addresses)]]
    assert [line.rpartition(" ")[0] for line in found] == [
        "hf:owner/tiny 3",
        "hf:owner/tiny#fp16 108",
        "hf:owner/tiny@other 4",
    ]
    assert len({line.split()[-1] for line in found}) == 3


def test_a_folder_with_the_same_files_is_the_same_network(hub, tmp_path):
    for name, content in hub.other.items():
        (tmp_path / "net" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "net" / name).write_bytes(content)
    backbone = load_backbone(tmp_path / "net")
    assert load(hub, tmp_path / "home", "hf:owner/tiny@other").split()[-1] == backbone.digest
    pixels = np.random.default_rng(0).random((2, 3, 6, 6), dtype=np.float32)
    weights = np.arange(12).reshape(3, 4)
    np.testing.assert_allclose(backbone.embed(pixels), pixels.mean(axis=(2, 3)) @ weights, rtol=1e-5)


def test_mistakes_are_one_sentence(hub, tmp_path):
    sentences = {
        "hf:owner/none": "is not on the Hub, or it is private. Check its name",
        "hf:owner/gated": "is gated. Accept its terms on its page",
        "hf:owner/tiny@nope": "does not have that revision",
        "hf:owner/tiny#q4": "has no network onnx/model_q4.onnx .* it has onnx/model.onnx, onnx/model_fp16.onnx",
    }
    runs = {name: start(hub, tmp_path / str(n), name) for n, name in enumerate(sentences)}
    for name, run in runs.items():
        with pytest.raises(InputError, match=sentences[name]):
            raise InputError(finish(run))


def test_half_a_download_is_never_used(hub, tmp_path):
    addresses = ("hf:owner/tiny", "hf:owner/tiny@other")

    def load_both(**environment):
        runs = [start(hub, tmp_path / str(n), name, **environment) for n, name in enumerate(addresses)]
        return [finish(run) for run in runs]

    hub.cut = {(COMMIT, "onnx/model.onnx"), (OTHER, "onnx/model.onnx_data")}
    try:
        assert all("was not fetched whole" in said for said in load_both())
    finally:
        hub.cut = set()
    assert not any(re.search(" [0-9a-f]{64}$", said) for said in load_both(HF_HUB_OFFLINE="1"))
    assert all(re.search(" [0-9a-f]{64}$", said) for said in load_both())


def test_what_is_no_address_is_refused():
    for address in ("hf:", "hf:tiny", "hf:owner/", "hf:a/b/c", "hf:owner/tiny@", "hf:../tiny"):
        with pytest.raises(InputError, match="is not an address on the Hub"):
            fetch_network(address)


def test_a_missing_client_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"pip install 'p3dc-shot\[hub\]'"):
        fetch_network("hf:owner/tiny")


def test_without_a_connection_the_sentence_says_so(unreachable):
    assert "is not in the cache of the Hub, and the Hub cannot be reached" in finish(unreachable)
