import os
import subprocess
import sys

import pytest

from p3dc.errors import InputError
from p3dc.images.backbones.loading import load_backbone
from p3dc.images.preprocessing import EXAMPLE
from tests.conftest import TOML
from tests.images.backbones.test_onnx_network import HOW, model


def test_a_file_brings_its_preprocessing_along(tmp_path):
    path = tmp_path / "birds.onnx"
    path.write_bytes(model())
    with pytest.raises(InputError, match=r"birds.onnx has no birds.toml next to it(.|\n)*short_side = 256\ncrop"):
        load_backbone(path)
    given = load_backbone(path, HOW)
    (tmp_path / "birds.toml").write_text(TOML.replace("255", "1"))
    found = load_backbone(str(path), threads=1)
    assert found.name == given.name == "birds"
    assert found.digest == given.digest
    (tmp_path / "birds.toml").write_text(EXAMPLE)
    with pytest.raises(InputError, match="birds.onnx takes images of shape"):
        load_backbone(path)


def test_unknown_names_and_missing_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="there is no backbone 'resnet'. Use efficientnet-lite0, "):
        load_backbone("resnet")
    with pytest.raises(InputError, match="none.onnx is not a file"):
        load_backbone(tmp_path / "none.onnx")


def test_importing_the_modules_of_images_imports_nothing_heavy():
    code = """
import sys
from importlib import import_module
from pathlib import Path
import p3dc.images

root = Path(p3dc.images.__file__).parent
for path in sorted(root.rglob("[a-z]*.py")):
    if path.name not in ("timm_export.py", "torch_network.py"):
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
    path.with_suffix(".toml").write_text(TOML)
    with pytest.raises(InputError, match="different features in a batch than by itself"):
        load_backbone(path)


def test_a_network_cannot_take_the_name_of_the_built_in_one(tmp_path):
    path = tmp_path / "efficientnet-lite0.onnx"
    path.write_bytes(model([("Flatten", ["pixels"], ["features"], {})]))
    path.with_suffix(".toml").write_text(TOML)
    assert load_backbone(path).name == "efficientnet-lite0.onnx"


def test_onnx_runtime_leaves_no_telemetry_files(tmp_path):
    code = "from p3dc.images.backbones.loading import load_backbone; load_backbone()"
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert {path.parts[len(tmp_path.parts)] for path in tmp_path.rglob("*")} <= {"p3dc"}
