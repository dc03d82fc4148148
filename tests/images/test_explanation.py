"""Why a photo has its label."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from p3dc import ImageClassifier, Priors
from p3dc.errors import InputError
from p3dc.images.central_photos import LONGEST, with_thumbnails
from p3dc.images.embedding import embed_images
from p3dc.images.examples import open_thumbnail
from p3dc.images.explanation import N_NEIGHBOURS, explain
from p3dc.images.sources import list_folder
from p3dc.method import l2_normalize
from p3dc.priors.central import CentralRow
from tests.images.conftest import COLOURS, paint, paint_classes
from tests.images.test_extraction import Colours

POINT = (0.2, 0.6)


@pytest.fixture
def pulled(photos, colour_priors):
    """A classifier whose examples are surely pulled, at both levels."""
    plain = ImageClassifier.from_folder(photos, backbone=Colours(), priors=colour_priors, reject=None)
    return ImageClassifier(Colours(), plain.examples, colour_priors, reject=None, point=POINT)


@pytest.fixture
def photo(tmp_path):
    return paint(tmp_path / "new.png", COLOURS["rust"], seed=70)


def test_the_label_is_that_of_predict(pulled, photo):
    explanation = explain(pulled, photo)
    assert explanation.prediction == next(pulled.predict([photo]))
    assert explanation.prediction.label == "rust"
    with Image.open(io.BytesIO(explanation.photo)) as image:
        assert image.format == "JPEG"
        np.testing.assert_allclose(np.asarray(image).mean(axis=(0, 1)), COLOURS["rust"], atol=15)


def test_neighbours_are_the_nearest_examples_the_nearest_first(pulled, photo):
    explanation = explain(pulled, photo)
    features = pulled.backbone.embed(pulled.backbone.preprocessing.prepare(Image.open(photo).convert("RGB"))[None])
    query = l2_normalize(pulled.calibrated.transform(features))[0]
    expected = sorted(
        (-float(sample @ query), example.key)
        for sample, example in zip(pulled.calibrated.samples, pulled.examples, strict=True)
    )[:N_NEIGHBOURS]
    assert [near.example.key for near in explanation.neighbours] == [key for _, key in expected]
    np.testing.assert_allclose([near.cosine for near in explanation.neighbours], [-cosine for cosine, _ in expected])
    assert explanation.neighbours[0].example.label == "rust"


def test_cosines_are_those_of_the_calibration(pulled, photo):
    explanation = explain(pulled, photo)
    assert list(explanation.cosines) == pulled.classes
    assert max(explanation.cosines, key=explanation.cosines.get) == explanation.prediction.label
    assert all(-1 <= cosine <= 1 for cosine in explanation.cosines.values())
    assert explanation.beta == POINT[1]
    assert explanation.unknown_below == -np.inf


def test_few_examples_are_all_neighbours(photos, photo):
    classifier = ImageClassifier.from_folder(photos, backbone=Colours(), priors=None)
    few = classifier.with_examples([classifier.examples[0], classifier.examples[4]])
    assert [near.example.key for near in explain(few, photo).neighbours] == ["rust/0.png", "olive/0.png"]


@pytest.mark.parametrize("point", [(0.0, 0.5), (0.3, 0.0), POINT])
def test_pulls_are_the_weights_of_both_levels(pulled, colour_priors, photo, point):
    classifier = ImageClassifier(Colours(), pulled.examples, colour_priors, reject=None, point=point)
    _, _, weights = classifier.calibrated.pulls()
    alpha, beta = (share / sum(point) for share in point)
    keys = [example.key for example in classifier.examples]
    for near in explain(classifier, photo).neighbours:
        sample, task = weights[keys.index(near.example.key)]
        expected = dict(zip(colour_priors.class_names, alpha * sample + beta * task, strict=True))
        shown = {pull.name: pull.weight for pull in near.pulls}
        assert len(shown) == 5
        assert list(shown.values()) == sorted(shown.values(), reverse=True)
        assert 0 < sum(shown.values()) <= 1 + 1e-12
        assert min(shown.values()) >= max(weight for name, weight in expected.items() if name not in shown)
        for name, weight in shown.items():
            assert weight == pytest.approx(expected[name])


def test_where_nothing_pulls_it_says_what_the_examples_resemble(pulled, colour_priors, photo):
    classifier = ImageClassifier(Colours(), pulled.examples, colour_priors, reject=None, point=(0.0, 0.0))
    explanation = explain(classifier, photo)
    assert not explanation.pulling
    keys = [example.key for example in classifier.examples]
    for near in explanation.neighbours:
        alone = classifier.calibrated.pulls()[2][keys.index(near.example.key), 0]
        assert [pull.weight for pull in near.pulls] == pytest.approx(np.sort(alone)[::-1][:5])
    report = "\n".join(explanation.lines())
    assert "pulled" not in report
    assert "; resembles " in report


def test_without_base_classes_none_are_named(pulled, photo):
    explanation = explain(ImageClassifier(Colours(), pulled.examples, None, reject=None), photo)
    assert all(near.pulls == () for near in explanation.neighbours)
    assert "pulled" not in "\n".join(explanation.lines())


def test_it_is_written_as_lines(pulled, photo):
    explanation = explain(pulled, photo)
    first, *others = explanation.lines()
    assert first == f"{photo}: rust ({100 * explanation.prediction.probability:.0f} % rust)"
    assert len(others) == N_NEIGHBOURS
    for line, near in zip(others, explanation.neighbours, strict=True):
        name, weight = near.pulls[0].name, near.pulls[0].weight
        start = f"  {near.cosine:+.2f}  {near.example.label}  {near.example.key}; pulled by "
        assert line.startswith(f"{start}{name} {100 * weight:.0f} %, ")
        assert line.count("%") == 5


def test_an_unknown_photo_is_explained(tmp_path):
    root = paint_classes(tmp_path / "warm", colours={"gold": (220, 150, 10), "moss": (150, 190, 10)})
    far = paint(tmp_path / "far.png", (10, 15, 230))
    explanation = explain(ImageClassifier.from_folder(root, backbone=Colours(), priors=None), far)
    largest = max(explanation.cosines.values())
    assert explanation.prediction.label == "unknown"
    assert largest < explanation.unknown_below
    first, second, *_ = explanation.lines()
    assert first.startswith(f"{far}: unknown (")
    assert first.endswith(f" % {explanation.prediction.runner_up})")
    assert second == f"its largest cosine to a class, {largest:.2f}, is below {explanation.unknown_below:.2f}"


def test_json_has_all_but_the_pictures(pulled, photo):
    explanation = explain(pulled, photo)
    report = json.loads(json.dumps(explanation.to_json(), allow_nan=False))
    assert report["path"] == str(photo)
    assert report["label"] == "rust"
    assert report["runner_up"] == explanation.prediction.runner_up
    assert report["probability"] == explanation.prediction.probability
    assert report["cosines"] == explanation.cosines
    assert report["beta"] == POINT[1]
    for entry, near in zip(report["neighbours"], explanation.neighbours, strict=True):
        assert (entry["photo"], entry["label"], entry["cosine"]) == (near.example.key, near.example.label, near.cosine)
        assert entry["base_classes"] == [{"name": pull.name, "weight": pull.weight} for pull in near.pulls]


def test_a_photo_that_cannot_be_read_is_named(pulled, tmp_path):
    empty = tmp_path / "empty.jpg"
    empty.touch()
    with pytest.raises(InputError, match=r"empty\.jpg: The file is empty"):
        explain(pulled, empty)
    with pytest.raises(InputError, match=r"gone\.jpg: The file does not exist"):
        explain(pulled, tmp_path / "gone.jpg")
    Image.new("RGB", (8, 8)).save(tmp_path / "black.png")
    with pytest.raises(InputError, match=r"black\.png: Its features are all zeros"):
        explain(pulled, tmp_path / "black.png")


def test_with_the_real_network_base_classes_have_names(photos, lite0_backbone):
    plain = ImageClassifier.from_folder(photos, backbone=lite0_backbone, reject=None)
    classifier = ImageClassifier(lite0_backbone, plain.examples, plain.priors, reject=None, point=(0.0, 0.5))
    explanation = explain(classifier, photos / "teal" / "2.png")
    assert explanation.neighbours[0].example.key == "teal/2.png"
    names = {pull.name for near in explanation.neighbours for pull in near.pulls}
    assert names <= set(plain.priors.class_names)
    assert len(names) >= 5


def test_a_cluster_shows_its_most_central_photos_in_place_of_a_name(pulled, photos, photo):
    files = list(list_folder(photos))
    found = dict(embed_images(files, lambda file: Image.open(file.path).convert("RGB"), Colours()))
    rows = np.stack([found[file] for file in files])
    plain = Priors.from_unlabelled(lambda: [(rows, [file.key for file in files])], n_clusters=6)
    clusters = with_thumbnails(plain, files)
    explanation = explain(ImageClassifier(Colours(), pulled.examples, clusters, reject=None, point=POINT), photo)
    report, lines = explanation.to_json(), list(explanation.lines())
    for near, entry, line in zip(explanation.neighbours, report["neighbours"], lines[1:], strict=True):
        for pull, written in zip(near.pulls, entry["base_classes"], strict=True):
            assert pull.central == clusters.central[clusters.class_names.index(pull.name)]
            assert written["central"] == [row.key for row in pull.central]
            assert f"cluster of {pull.central[0].key} {100 * pull.weight:.0f} %" in line
            for row in pull.central:
                assert max(open_thumbnail(row.thumbnail).size) <= LONGEST
                colour = np.asarray(open_thumbnail(row.thumbnail)).mean(axis=(0, 1))
                np.testing.assert_allclose(colour, COLOURS[row.key.split("/")[0]], atol=25)


def test_a_central_photo_that_has_gone_has_no_thumbnail(photos):
    files = list(list_folder(photos))
    priors = Priors(np.eye(2), clusters=[True, True], central=[[CentralRow(file.key)] for file in files[:2]])
    files[0].path.unlink()
    gone, there = with_thumbnails(priors, files).central
    assert gone == (CentralRow(files[0].key),)
    assert there[0].thumbnail
