"""One file of each kind that the package writes or reads, and what reading it says."""

import hashlib
import io
import pickle
import tarfile
import zipfile
from dataclasses import dataclass

import numpy as np
from PIL import Image

from p3dc import FeatureSet, ImageClassifier, P3DCClassifier, Priors
from p3dc.images.backbone_priors import Scatter
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.backbones.loading import load_backbone
from p3dc.images.decoding import read_image
from p3dc.images.examples import Example
from p3dc.images.preprocessing import Preprocessing
from p3dc.io.archives import tar_members, zip_members
from p3dc.io.torch_file import read_tensors
from tests.conftest import TOML, make_features
from tests.io.test_torch_file import content, new, old, whole


@dataclass(frozen=True)
class Kind:
    """A file: its ending, how to make it at a path, how to read it, and whether the package writes such files."""

    ending: str
    write: object
    read: object
    own: bool = True


class Plain(Backbone):
    """A backbone of a few features that is never run."""

    name, digest, n_features, step = "plain", "0" * 64, 24, 8
    preprocessing = Preprocessing(short_side=8, crop=6, mean=(0, 0, 0), scale=(1, 1, 1))

    def _embed(self, batch):
        raise NotImplementedError


BASE, NOVEL = make_features(1, 6, 8, prefix="base"), make_features(2, 3, 2, prefix="novel")
NAMES = np.array(NOVEL.class_names)[NOVEL.labels]


def _fitted():
    return P3DCClassifier(Priors.from_features(BASE), reject=0.05).fit(NOVEL.features, NAMES)


def _image_model(path):
    rows = zip(NAMES, NOVEL.features, strict=True)
    examples = [Example(f"{i}.png", str(name), row, _image("JPEG", 4)) for i, (name, row) in enumerate(rows)]
    ImageClassifier(Plain(), examples, Priors.from_features(BASE), reject=0.05).save(path)


def _features(path):
    rows = NOVEL.features
    ids = [f"photo {i}" for i in range(len(rows))]
    FeatureSet(rows, NOVEL.labels, NOVEL.class_names[::-1], ids, views=rows[:, None].repeat(2, 1)).save(path)


def _scatter(path):
    Scatter.from_priors(Priors.from_features(BASE)).save(path)


def _plk(path):
    classes = {f"class {c}": list(BASE.features[BASE.labels == c]) for c in range(3)}
    path.write_bytes(pickle.dumps(classes, protocol=2))


def _torch(path):
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    make = new if path.suffix == ".pth" else old
    path.write_bytes(make(content({"weight": whole(weights, "0")}), {"0": weights.ravel()}))


def _image(kind, size=16):
    rng = np.random.default_rng(0)
    pixels = Image.fromarray(rng.integers(0, 256, (size, size, 3), dtype=np.uint8))
    buffer = io.BytesIO()
    options = {"compression": "tiff_deflate"} if kind == "TIFF" else {}
    pixels.save(buffer, kind, **options)
    return buffer.getvalue()


def _archive(path):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in ("wren/0.png", "robin/1.png"):
                archive.writestr(name, _image("PNG"))
    else:
        with tarfile.open(path, "w") as archive:
            for name in ("wren/0.png", "robin/1.png"):
                info = tarfile.TarInfo(name)
                info.size = len(_image("PNG"))
                archive.addfile(info, io.BytesIO(_image("PNG")))


def _network(path):
    from tests.images.backbones.test_onnx_network import model

    path.write_bytes(model([("Flatten", ["pixels"], ["features"], {})]))
    path.with_suffix(".toml").write_text(TOML)


def _of_arrays(*arrays):
    return [None if a is None else (str(a.dtype), a.shape, hashlib.sha256(a.tobytes()).hexdigest()) for a in arrays]


def _read_priors(path):
    found = Priors.load(path)
    moments = found.moments
    scatter = None if moments is None else moments.scatter
    arrays = _of_arrays(found.prototypes, found.counts, found.geometry.axes, found.geometry.prototypes, scatter)
    return arrays, found.class_names, found.geometry.tightness, found.geometry.spread


def _read_classifier(path):
    found = P3DCClassifier.load(path)
    return _of_arrays(found.decision_function(NOVEL.features)), found.predict(BASE.features).tolist()


def _read_model(path):
    found = ImageClassifier.load(path, Plain())
    return _of_arrays(found.support), found.label(NOVEL.features), [each.thumbnail for each in found.examples]


def _read_features(path):
    found = FeatureSet.load(path, also=["views"])
    return _of_arrays(found.features, found.labels, found.views), found.class_names, found.ids.tolist()


def _read_scatter(path):
    found = Scatter.load(path)
    return _of_arrays(found.mean, found.geometry.axes, found.geometry.gains), found.distance, found.geometry.rest


def _read_members(members):
    return lambda path: [(member.name, member.read_bytes()) for member in members(path)]


def _read_pixels(path):
    return _of_arrays(np.asarray(read_image(path)))


KINDS = {
    "priors": Kind(".safetensors", lambda path: Priors.from_features(BASE).save(path), _read_priors),
    "classifier": Kind(".safetensors", lambda path: _fitted().save(path), _read_classifier),
    "image model": Kind(".safetensors", _image_model, _read_model),
    "geometry": Kind(".safetensors", _scatter, _read_scatter),
    "features, npz": Kind(".npz", _features, _read_features),
    "features, Parquet": Kind(".parquet", _features, _read_features),
    "features, plk": Kind(".plk", _plk, lambda path: FeatureSet.load(path).class_names, own=False),
    "torch": Kind(".pth", _torch, lambda path: list(read_tensors(path)), own=False),
    "torch, old": Kind(".pt", _torch, lambda path: list(read_tensors(path)), own=False),
    "ONNX": Kind(".onnx", _network, lambda path: load_backbone(path).n_features, own=False),
    "zip": Kind(".zip", _archive, _read_members(zip_members), own=False),
    "tar": Kind(".tar", _archive, _read_members(tar_members), own=False),
    **{
        kind: Kind(f".{kind.lower()}", lambda path, kind=kind: path.write_bytes(_image(kind)), _read_pixels, own=False)
        for kind in ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "AVIF")
    },
}
