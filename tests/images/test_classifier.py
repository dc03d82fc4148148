"""Photos in, labels out."""

import io
import itertools
import json
import shutil
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors import safe_open
from safetensors.numpy import save_file

from p3dc import FeatureSet, ImageClassifier, P3DCClassifier, Priors
from p3dc.classifier import file
from p3dc.errors import InputError
from p3dc.images.examples import Example, labelled, read_examples
from p3dc.images.model_file import VERSION, identity
from p3dc.images.sources import list_folder
from p3dc.io.safetensors import content_digest, read_arrays, write_arrays
from tests.conftest import make_features, paper
from tests.images.conftest import COLOURS, paint, paint_classes
from tests.images.test_extraction import Colours

WARM = {"gold": (220, 150, 10), "moss": (150, 190, 10)}
BLUE = (10, 15, 230)


def examples_of(features, labels):
    rows = zip(features, labels, strict=True)
    return [Example(f"{i}.jpg", str(label), row, b"") for i, (row, label) in enumerate(rows)]


def labels_of(predictions):
    return [found.label for found in predictions]


def saved(classifier, path):
    classifier.save(path)
    return path


@pytest.fixture
def classifier(photos):
    return ImageClassifier.from_folder(photos, backbone=Colours(), priors=None, reject=None)


def test_photos_get_the_class_that_they_look_like(classifier, tmp_path):
    assert classifier.classes == ["olive", "rust", "teal"]
    new = paint_classes(tmp_path / "new", n_each=5, first=50)
    files = list(list_folder(new))
    found = list(classifier.predict(file.path for file in files))
    assert labels_of(found) == [file.label for file in files]
    assert [each.key for each in found] == [str(file.path) for file in files]
    assert all(each.failure == "" and 1 / 3 < each.probability <= 1 for each in found)


def test_examples_stand_in_the_order_of_the_folder(photos):
    seen = []
    watched = {"progress": lambda *step: seen.append(step)}
    classifier = ImageClassifier.from_folder(photos, backbone=Colours(), priors=None, **watched)
    assert [(each.key, each.label) for each in classifier.examples] == [
        (file.key, file.label) for file in list_folder(photos)
    ]
    assert seen == [(done, 12) for done in range(1, 13)]
    assert classifier.failures == ()


def test_a_csv_serves_as_well_as_folders(photos, classifier, tmp_path):
    table = tmp_path / "photos.csv"
    rows = [f"photos/{file.key},{file.label}" for file in list_folder(photos)]
    table.write_text("\n".join(["path,label", *rows]))
    from_table = ImageClassifier.from_folder(table, backbone=Colours(), priors=None, reject=None)
    np.testing.assert_array_equal(from_table.support, classifier.support)
    assert from_table.classes == classifier.classes


def test_thumbnails_are_small_jpegs_of_the_photos(tmp_path):
    for name, colour in COLOURS.items():
        (tmp_path / name).mkdir()
        Image.new("RGB", (600, 300), colour).save(tmp_path / name / "wide.png")
    examples, failures = read_examples(labelled(tmp_path), Colours())
    assert failures == []
    for example, colour in zip(examples, COLOURS.values(), strict=True):
        with Image.open(io.BytesIO(example.thumbnail)) as image:
            assert image.format == "JPEG"
            assert image.size == (160, 80)
            np.testing.assert_allclose(np.asarray(image).mean(axis=(0, 1)), colour, atol=4)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["olive/1.png"], "has photos of one class, 'olive'. Add a class"),
        (["1.png", "2.png"], "1.png in .* has no class. Put the photos of each class into a folder"),
        (["olive/1.png", "2.png"], "has images of its own"),
        ([], "holds no images"),
    ],
)
def test_folders_that_tell_no_classes_apart_are_refused(tmp_path, names, sentence):
    root = tmp_path / "photos"
    root.mkdir()
    for name in names:
        paint(root / name, COLOURS["olive"])
    with pytest.raises(InputError, match=sentence):
        ImageClassifier.from_folder(root, backbone=Colours(), priors=None)


def test_a_csv_with_an_empty_label_is_refused(photos, tmp_path):
    table = tmp_path / "photos.csv"
    table.write_text("path,label\nphotos/olive/0.png,olive\nphotos/rust/0.png,\n")
    with pytest.raises(InputError, match="photos/rust/0.png in .*photos.csv has no class"):
        ImageClassifier.from_folder(table, backbone=Colours(), priors=None)


def test_a_class_may_be_called_unknown_only_where_none_is_turned_away(tmp_path):
    root = paint_classes(tmp_path, colours={"unknown": (200, 20, 20), "moss": (20, 200, 20)})
    with pytest.raises(InputError, match="there is a class 'unknown', which is what reject calls others"):
        ImageClassifier.from_folder(root, backbone=Colours(), priors=None)
    classifier = ImageClassifier.from_folder(root, backbone=Colours(), priors=None, reject=None)
    assert labels_of(classifier.predict([root / "unknown" / "0.png", root / "moss" / "0.png"])) == ["unknown", "moss"]


@pytest.mark.parametrize("reject", [0, 1, -0.1, 2, float("nan"), "0.2", True])
def test_a_share_that_is_none_is_refused(classifier, reject):
    with pytest.raises(InputError, match="reject is .* It must be a number between 0 and 1, or None"):
        ImageClassifier(Colours(), classifier.examples, reject=reject)


def test_no_examples_are_refused():
    with pytest.raises(InputError, match="two classes or more, but there is none"):
        ImageClassifier(Colours(), [])


def test_photos_that_cannot_be_read_are_told_and_the_others_used(photos):
    (photos / "olive" / "1.png").write_bytes(b"no photo")
    (photos / "teal" / "3.png").write_bytes(b"")
    seen = []
    watched = {"progress": lambda *step: seen.append(step)}
    classifier = ImageClassifier.from_folder(photos, backbone=Colours(), priors=None, **watched)
    assert [key for key, _ in classifier.failures] == ["olive/1.png", "teal/3.png"]
    assert "not a JPEG" in classifier.failures[0][1]
    assert "empty" in classifier.failures[1][1]
    assert len(classifier.examples) == 10
    assert not {"olive/1.png", "teal/3.png"} & {example.key for example in classifier.examples}
    assert seen[-1] == (12, 12)
    for example in classifier.examples:
        alone = next(each for each in read_examples(labelled(photos), Colours())[0] if each.key == example.key)
        np.testing.assert_array_equal(example.features, alone.features)
        assert example.thumbnail == alone.thumbnail


def test_a_folder_without_one_readable_photo_is_refused(photos):
    for path in photos.glob("*/*.png"):
        path.write_bytes(b"")
    with pytest.raises(InputError, match="none of the 12 photos in .* can be read. The file is empty"):
        ImageClassifier.from_folder(photos, backbone=Colours(), priors=None)


def test_a_class_of_which_no_photo_can_be_read_does_not_count(photos):
    for path in [*(photos / "olive").iterdir(), *(photos / "rust").iterdir()]:
        path.write_bytes(b"")
    with pytest.raises(InputError, match="two classes or more, but there is only 'teal'"):
        ImageClassifier.from_folder(photos, backbone=Colours(), priors=None)


def test_priors_of_another_width_are_refused(photos, priors):
    with pytest.raises(InputError, match="photos have 12 features but the priors have 24"):
        ImageClassifier.from_folder(photos, backbone=Colours(), priors=priors)


def test_priors_are_those_asked_for(photos, colour_priors, lite0_backbone):
    assert ImageClassifier.from_folder(photos, backbone=Colours(), priors=colour_priors).priors is colour_priors
    assert ImageClassifier.from_folder(photos, backbone=Colours()).priors is None
    assert len(ImageClassifier.from_folder(photos, backbone=lite0_backbone).priors) == 1000
    assert ImageClassifier.from_folder(photos, backbone=lite0_backbone, priors=None).priors is None


def test_the_backbone_is_loaded_unless_it_is_given(photos, lite0_backbone):
    classifier = ImageClassifier.from_folder(photos)
    assert classifier.backbone.digest == lite0_backbone.digest
    assert classifier.support.shape == (12, 1280)


def test_a_photo_without_a_label_has_a_failure(classifier, photos, tmp_path):
    empty = tmp_path / "empty.jpg"
    empty.touch()
    stream = [photos / "teal" / "0.png", empty, tmp_path / "gone.jpg", photos / "rust" / "2.png", photos]
    found = list(classifier.predict(stream))
    assert [each.key for each in found] == list(map(str, stream))
    assert labels_of(found) == ["teal", "", "", "rust", ""]
    assert [each.failure.partition(".")[0] for each in found] == [
        "",
        "The file is empty",
        "The file does not exist, or not any more",
        "",
        "It is a folder",
    ]
    assert found[1].runner_up == ""
    assert np.isnan([found[1].probability, found[1].runner_up_probability]).all()


def test_no_photos_have_no_labels(classifier):
    assert list(classifier.predict([])) == []


@settings(max_examples=10, deadline=None)
@given(batch=st.integers(1, 9), order=st.permutations(range(12)))
def test_labels_come_in_the_order_of_the_photos(tmp_path_factory, batch, order):
    root = tmp_path_factory.getbasetemp() / "ordered"
    if not root.exists():
        paint_classes(root)
    files = list(list_folder(root))
    classifier = ImageClassifier.from_folder(root, backbone=Colours(), priors=None, reject=None)
    found = list(classifier.predict([str(files[i].path) for i in order], batch=batch))
    assert [each.key for each in found] == [str(files[i].path) for i in order]
    assert labels_of(found) == [files[i].label for i in order]


def test_the_first_label_does_not_wait_for_all_photos(classifier, photos):
    taken = []

    def endless():
        for number in itertools.count():
            taken.append(number)
            yield photos / "teal" / "0.png"

    stream = classifier.predict(endless(), batch=4)
    assert next(stream).label == "teal"
    most = 1 + max(4, 64)  # no machine here has more cores
    assert len(taken) <= most
    assert len(list(itertools.islice(stream, 50))) == 50
    assert len(taken) <= 51 + 4 + most
    stream.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("p3dc-read")]


def test_a_photo_far_from_all_classes_is_unknown_where_unknowns_are_rejected(tmp_path):
    root = paint_classes(tmp_path / "warm", colours=WARM)
    far, near = paint(tmp_path / "far.png", BLUE), paint(tmp_path / "near.png", WARM["gold"], seed=99)
    found = {
        reject: list(
            ImageClassifier.from_folder(root, backbone=Colours(), priors=None, reject=reject).predict([far, near])
        )
        for reject in (None, 0.2)
    }
    assert labels_of(found[0.2]) == ["unknown", "gold"]
    assert set(labels_of(found[None])) <= {"gold", "moss"}
    likeliest, unknown = found[None][0], found[0.2][0]
    assert unknown.runner_up == likeliest.label
    assert unknown.runner_up_probability == unknown.probability == likeliest.probability


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), reject=st.one_of(st.none(), st.floats(0.01, 0.99)))
def test_nothing_is_unknown_without_reject_and_what_is_nearest_is_never_lost(seed, reject):
    made = make_features(seed, 4, 8, n_features=12)
    names = np.array(made.class_names)[made.labels]
    classifier = ImageClassifier(Colours(), examples_of(made.features, names), reject=reject)
    queries = np.random.default_rng(seed).gamma(0.3, 1.0, (20, 12)) + 0.01
    cosines = classifier.calibrated.cosines(queries)
    for found, cosine in zip(classifier.label(queries), cosines, strict=True):
        order = [classifier.classes[i] for i in np.argsort(-cosine, kind="stable")]
        if cosine.max() < classifier.fitted.unknown_below:
            assert (found.label, found.runner_up) == ("unknown", order[0])
            assert found.runner_up_probability == found.probability
        else:
            assert (found.label, found.runner_up) == (order[0], order[1])
            assert found.runner_up_probability <= found.probability
        if reject is None:
            assert found.label != "unknown"


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 999),
    shots=st.lists(st.integers(1, 5), min_size=2, max_size=6),
    reject=st.one_of(st.none(), st.floats(0.05, 0.95)),
    known=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_labels_are_those_of_the_estimator(colour_priors, seed, shots, reject, known, dtype):
    made = make_features(seed, len(shots), 12, n_features=12, dtype=dtype)
    support = np.concatenate([np.flatnonzero(made.labels == c)[:k] for c, k in enumerate(shots)])
    support = np.random.default_rng(seed).permutation(support)
    queries = np.concatenate([np.flatnonzero(made.labels == c)[5:] for c in range(len(shots))])
    names = np.array(made.class_names)[made.labels]
    priors = colour_priors if known else None
    expected = P3DCClassifier(priors, reject=reject).fit(made.features[support], names[support])
    classifier = ImageClassifier(Colours(), examples_of(made.features[support], names[support]), priors, reject=reject)
    found = classifier.label(made.features[queries])
    assert labels_of(found) == expected.predict(made.features[queries]).tolist()
    assert classifier.classes == expected.classes_.tolist()
    probabilities = np.sort(expected.predict_proba(made.features[queries]), axis=1)
    np.testing.assert_allclose([each.probability for each in found], probabilities[:, -1], rtol=1e-12)
    kept = [i for i, each in enumerate(found) if each.label != "unknown"]
    np.testing.assert_allclose(
        [found[i].runner_up_probability for i in kept], probabilities[kept, -2], rtol=1e-9, atol=1e-300
    )
    assert classifier.calibrated.beta == expected.beta_
    if reject is None:
        assert classifier.fitted.unknown_below == -np.inf
    else:
        assert classifier.fitted.unknown_below == expected.unknown_below_


def test_a_point_that_is_given_is_used(colour_priors, classifier):
    told = ImageClassifier(Colours(), classifier.examples, colour_priors, point=(0.2, 0.3))
    assert (told.calibrated.alpha, told.calibrated.beta) == (0.2, 0.3)
    free = ImageClassifier(Colours(), classifier.examples, colour_priors)
    assert not np.array_equal(free.calibrated.samples, told.calibrated.samples)


def test_with_examples_nothing_else_changes(classifier, colour_priors):
    before = ImageClassifier(Colours(), classifier.examples, colour_priors, reject=0.3, point=(0.0, 0.5))
    after = before.with_examples(before.examples[:8], [("gone.jpg", "It is gone.")])
    assert after.classes == ["olive", "rust"]
    assert (after.backbone, after.priors, after.reject, after.point) == (
        before.backbone,
        colour_priors,
        0.3,
        (0.0, 0.5),
    )
    assert after.failures == (("gone.jpg", "It is gone."),)
    assert before.classes == ["olive", "rust", "teal"]
    with pytest.raises(InputError, match="only 'olive'"):
        before.with_examples(before.examples[:4])


def test_added_photos_count_as_if_they_had_been_there(classifier, photos, tmp_path):
    more = paint_classes(tmp_path / "more", n_each=2, first=20)
    paint(more / "plum" / "0.png", (120, 20, 120))
    both = tmp_path / "both"
    shutil.copytree(photos, both)
    shutil.copytree(more, both, dirs_exist_ok=True)
    added = classifier.add(more)
    whole = ImageClassifier.from_folder(both, backbone=Colours(), priors=None, reject=None)
    assert added.classes == whole.classes == ["olive", "plum", "rust", "teal"]
    assert added.review.shots == whole.review.shots
    queries = make_features(0, 3, 4, n_features=12).features
    for one, two in zip(added.label(queries), whole.label(queries), strict=True):
        assert (one.label, one.runner_up) == (two.label, two.runner_up)
        assert one.probability == pytest.approx(two.probability, rel=1e-9)
    assert labels_of(added.predict([more / "plum" / "0.png"])) == ["plum"]
    assert len(classifier.examples) == 12


def test_photos_that_are_there_already_are_left_out(classifier, photos, tmp_path):
    assert len(classifier.add(photos).examples) == 12
    more = tmp_path / "more"
    paint(more / "rust" / "again.png", COLOURS["rust"], seed=1000)
    paint(more / "rust" / "new.png", COLOURS["rust"], seed=77)
    added = classifier.add(more)
    assert [example.key for example in added.examples[12:]] == ["rust/new.png"]
    paint(more / "rust" / "bad.png", COLOURS["rust"]).write_bytes(b"")
    seen = []
    again = classifier.add(more, lambda *step: seen.append(step))
    assert [key for key, _ in again.failures] == ["rust/bad.png"]
    assert len(again.examples) == 13
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_with_the_real_network_photos_are_left_out_wherever_they_stand(photos, tmp_path, lite0_backbone):
    classifier = ImageClassifier.from_folder(photos, backbone=lite0_backbone)
    more = tmp_path / "more"
    shutil.copytree(photos, more)
    paint(more / "olive" / "!first.png", COLOURS["olive"], seed=123)
    added = classifier.add(more)
    assert [example.key for example in added.examples[12:]] == ["olive/!first.png"]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("settings", [{"reject": None}, {"reject": 0.35}, {"reject": 0.2, "point": (0.1, 0.4)}])
def test_a_saved_classifier_comes_back_the_same(classifier, colour_priors, tmp_path, known, settings):
    before = ImageClassifier(Colours(), classifier.examples, colour_priors if known else None, **settings)
    after = ImageClassifier.load(saved(before, tmp_path / "model.safetensors"), Colours())
    assert (after.classes, after.reject, after.point) == (before.classes, before.reject, before.point)
    assert [(each.key, each.label, each.thumbnail) for each in after.examples] == [
        (each.key, each.label, each.thumbnail) for each in before.examples
    ]
    np.testing.assert_array_equal(after.support, before.support)
    assert after.support.dtype == np.float32
    queries = make_features(0, 3, 8, n_features=12).features
    assert after.label(queries) == before.label(queries)
    assert after.fitted.unknown_below == before.fitted.unknown_below
    assert (after.priors is None) == (not known)
    if known:
        assert after.priors.class_names == colour_priors.class_names
    assert after.review == before.review


def test_with_the_real_network_a_saved_classifier_comes_back_the_same(photos, tmp_path, lite0_backbone):
    before = ImageClassifier.from_folder(photos, backbone=lite0_backbone)
    after = ImageClassifier.load(saved(before, tmp_path / "model.safetensors"))
    assert after.backbone.digest == lite0_backbone.digest
    stream = [photos / "rust" / "1.png", photos / "gone.png", paint(tmp_path / "new.png", COLOURS["teal"], seed=9)]
    one, two = (list(each.predict(stream)) for each in (before, after))
    assert str(one) == str(two)
    assert [found.label for found in one][:2] == ["rust", ""]
    assert len(after.add(photos).examples) == 12


def test_a_saved_classifier_can_be_added_to_and_saved_again(classifier, tmp_path):
    path = saved(classifier, tmp_path / "model.safetensors")
    paint(tmp_path / "more" / "plum" / "0.png", (120, 20, 120))
    ImageClassifier.load(path, Colours()).add(tmp_path / "more").save(path)
    last = ImageClassifier.load(path, Colours()).examples[-1]
    assert (last.key, last.label) == ("plum/0.png", "plum")
    with Image.open(io.BytesIO(last.thumbnail)) as image:
        assert image.size == (32, 32)


def test_another_backbone_is_refused_in_one_sentence(classifier, tmp_path):
    path = saved(classifier, tmp_path / "model.safetensors")
    with pytest.raises(InputError) as error:
        ImageClassifier.load(path, Colours(name="hues", digest="c1"))
    assert str(error.value) == (
        f"{path}: it was made with the backbone colours (c0), not with hues (c1). Use that backbone, or fit again."
    )
    assert ImageClassifier.load(path, Colours(name="hues")).classes == classifier.classes
    with pytest.raises(InputError, match="was made with the backbone colours. Give its .onnx file"):
        ImageClassifier.load(path)


def test_the_file_holds_numbers_and_json_and_nothing_that_runs(classifier, colour_priors, tmp_path):
    model = ImageClassifier(Colours(), classifier.examples, colour_priors)
    raw = saved(model, tmp_path / "model.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    told = header.pop("__metadata__")
    assert set(told) == {"format", "version", "facts", "digest"}
    assert told["format"] == "p3dc-images"
    assert json.loads(told["facts"])["backbone"] == identity(model.backbone) | {"views": 1}
    assert {entry["dtype"] for entry in header.values()} <= {"F32", "F64", "I64", "U8"}
    spans = sorted(entry["data_offsets"] for entry in header.values())
    assert [start for start, _ in spans] == [0, *(end for _, end in spans[:-1])]
    assert 8 + length + spans[-1][1] == len(raw)


@pytest.fixture(scope="module")
def hues():
    """Base classes with a geometry: twenty colours as Colours sees them."""
    rng = np.random.default_rng(4)
    labels = np.repeat(np.arange(20), 12)
    rows = np.abs(rng.uniform(0.05, 0.9, (20, 3, 1))[labels] + rng.normal(0, 0.06, (240, 3, 4)))
    found = Priors.from_features(FeatureSet(rows.reshape(-1, 12).astype(np.float32), labels))
    assert found.geometry is not None
    return found


@pytest.fixture
def pile(tmp_path):
    """Five photos of each class, six of another colour, and one that cannot be read between them."""
    known = [file.path for file in list_folder(paint_classes(tmp_path / "new", n_each=5, first=50))]
    others = [paint(tmp_path / "new" / "blue" / f"{n}.png", BLUE, seed=n) for n in range(6)]
    (tmp_path / "bad.jpg").touch()
    return [*known, tmp_path / "bad.jpg", *others]


def test_photos_that_are_labelled_together_refine_the_classes(photos, hues, pile):
    classifier = ImageClassifier.from_folder(photos, backbone=Colours(), priors=hues)
    seen = []
    together = classifier.label_together(pile, progress=lambda *step: seen.append(step))
    assert seen == [(done, 22) for done in range(1, 23)]
    assert [found.key for found in together.predictions] == list(map(str, pile))
    expected = [*(path.parent.name for path in pile[:15]), "", *["unknown"] * 6]
    assert labels_of(together.predictions) == expected
    assert [found.rejected for found in together.predictions] == [False] * 16 + [True] * 6
    assert together.predictions[15].failure == "The file is empty. Fetch it again."
    (group,) = together.groups
    assert sorted(group) == sorted(map(str, pile[16:]))
    refined = together.classifier
    assert 0 < refined.unlabelled_use <= 1
    assert refined.unlabelled_keys == tuple(str(path) for path in pile if path.name != "bad.jpg")
    assert refined.label_unlabelled() == [found for found in together.predictions if not found.failure]
    assert refined.label(refined.support) != classifier.label(classifier.support), "other photos profit too"
    assert (classifier.unlabelled_use, classifier.groups, classifier.unlabelled_keys) == (None, [], ())
    with pytest.raises(InputError, match="there are no unlabelled rows"):
        classifier.label_unlabelled()


def test_the_most_central_photos_of_a_group_come_first(photos, hues, pile):
    together = ImageClassifier.from_folder(photos, backbone=Colours(), priors=hues).label_together(pile)
    refined = together.classifier
    rows = dict(zip(refined.unlabelled_keys, refined.calibrated.transform(refined.fitted.unlabelled), strict=True))
    centre = refined.calibrated.refinement.groups[refined.calibrated.refinement.proposed][0]
    near = [rows[key] @ centre for key in together.groups[0]]
    assert near == sorted(near, reverse=True)


def test_labels_together_are_those_of_the_estimator_with_the_same_rows(photos, hues, pile):
    classifier = ImageClassifier.from_folder(photos, backbone=Colours(), priors=hues, reject=None)
    together = classifier.label_together(pile, balance="equal")
    names = [example.label for example in classifier.examples]
    estimator = P3DCClassifier(hues, pile_balance="equal").fit(
        classifier.support, names, unlabelled=together.classifier.fitted.unlabelled
    )
    found = [found for found in together.predictions if not found.failure]
    assert labels_of(found) == estimator.transduction_.tolist()
    best = estimator.transduction_proba_.max(axis=1)
    np.testing.assert_allclose([each.probability for each in found], best, rtol=1e-6)


def test_a_model_keeps_the_photos_that_refined_it(photos, hues, pile, tmp_path):
    classifier = ImageClassifier.from_folder(photos, backbone=Colours(), priors=hues)
    before = classifier.label_together(pile).classifier
    after = ImageClassifier.load(saved(before, tmp_path / "model.safetensors"), Colours())
    assert after.unlabelled_keys == before.unlabelled_keys
    assert (after.unlabelled_use, after.groups) == (before.unlabelled_use, before.groups)
    assert after.label_unlabelled() == before.label_unlabelled()
    assert after.label(before.support) == before.label(before.support)
    more = after.with_examples([*after.examples, *examples_of(after.fitted.unlabelled[-6:], ["blue"] * 6)])
    assert more.unlabelled_keys == before.unlabelled_keys
    assert labels_of(more.label_unlabelled())[-6:] == ["blue"] * 6
    assert more.groups == []


def test_without_base_classes_photos_are_labelled_as_one_by_one(classifier, pile):
    together = classifier.label_together(pile)
    alone = list(classifier.predict(pile))
    assert [(each.key, each.label, each.failure) for each in together.predictions] == [
        (each.key, each.label, each.failure) for each in alone
    ]
    probabilities = [[each.probability for each in found] for found in (together.predictions, alone)]
    np.testing.assert_allclose(*probabilities, rtol=1e-9)
    assert (together.groups, together.classifier.unlabelled_use) == ([], None)


def test_a_pile_of_one_photo_and_of_none(photos, hues, pile):
    classifier = ImageClassifier.from_folder(photos, backbone=Colours(), priors=hues)
    assert labels_of(classifier.label_together(pile[0]).predictions) == ["olive"]
    none = classifier.label_together(pile[15:16])
    assert (labels_of(none.predictions), none.groups) == ([""], [])
    assert none.classifier is classifier
    assert classifier.label_together([]).predictions == []


def test_unlabelled_features_must_fit(photos, hues):
    classifier = ImageClassifier.from_folder(photos, backbone=Colours(), priors=hues)
    with pytest.raises(InputError, match="2 unlabelled photos and 1 keys"):
        classifier.with_unlabelled(np.ones((2, 12)), ["one.jpg"])
    with pytest.raises(InputError, match="11 features"):
        classifier.with_unlabelled(np.ones((1, 11)), ["one.jpg"])
    with pytest.raises(InputError, match="pile_balance is 'even'"):
        classifier.with_unlabelled(np.ones((1, 12)), ["one.jpg"], "even")


def test_a_cut_file_is_refused(classifier, tmp_path):
    raw = saved(classifier, tmp_path / "model.safetensors").read_bytes()
    cut = tmp_path / "cut.safetensors"
    for n_bytes in [*range(0, len(raw), 211), len(raw) - 1]:
        cut.write_bytes(raw[:n_bytes])
        with pytest.raises(InputError, match="cut.safetensors is damaged or is not a safetensors file"):
            ImageClassifier.load(cut, Colours())


def test_files_of_another_kind_are_refused(classifier, colour_priors, tmp_path):
    path = tmp_path / "other.safetensors"
    with pytest.raises(InputError, match="other.safetensors is not a file"):
        ImageClassifier.load(path, Colours())
    colour_priors.save(path)
    with pytest.raises(InputError, match="of format 'p3dc-priors', not 'p3dc-images'"):
        ImageClassifier.load(path, Colours())
    paper().fit([[1.0, 0.0], [0.0, 1.0]], ["a", "b"]).save(path)
    with pytest.raises(InputError, match="of format 'p3dc-classifier', not 'p3dc-images'"):
        ImageClassifier.load(path, Colours())
    with pytest.raises(InputError, match="of format 'p3dc-images', not 'p3dc-priors'"):
        Priors.load(saved(classifier, path))


def changed(path, arrays=None, facts=None, without=(), header=None):
    """Write a model's file again with some of it changed."""
    with safe_open(path, framework="numpy") as file:
        kept = {name: file.get_tensor(name) for name in file.keys() if name not in without}  # noqa: SIM118
        told = file.metadata()
    told["facts"] = json.dumps(json.loads(told["facts"]) | (facts or {}))
    other = path.with_name("changed.safetensors")
    kept, told = kept | (arrays or {}), told | (header or {})
    save_file(kept, other, metadata=told | {"digest": content_digest(told, kept)})
    return other


def test_a_file_that_is_only_written_again_is_read(classifier, colour_priors, tmp_path):
    model = ImageClassifier(Colours(), classifier.examples, colour_priors)
    after = ImageClassifier.load(changed(saved(model, tmp_path / "model.safetensors")), Colours())
    assert after.label(model.support) == model.label(model.support)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"facts": {"keys": ["one.jpg"]}}, "is damaged"),
        ({"facts": {"keys": None}}, "is damaged"),
        ({"facts": {"unlabelled_keys": None}}, "is damaged"),
        ({"facts": {"unlabelled_keys": ["one.jpg"]}}, "is damaged"),
        ({"arrays": {"unlabelled": np.ones((2, 12), dtype=np.float32)}}, "is damaged"),
        ({"arrays": {"unlabelled": np.ones((2, 11), dtype=np.float32)}}, "2 features|11|12"),
        ({"facts": {"classes": ["olive"]}}, "is damaged"),
        ({"facts": {"classes": 3}}, "is damaged"),
        ({"facts": {"classes": ["olive"] * 3}}, "is damaged"),
        ({"facts": {"settings": {"alpha": [0.5]}}}, r"alpha is \[0.5\]"),
        ({"facts": {"settings": ["a", "b"]}}, "unknown parameters"),
        ({"facts": {"reject": "often"}}, "reject is 'often'"),
        ({"facts": {"backbone": "colours"}}, "is damaged"),
        ({"facts": {"backbone": {"name": "colours"}}}, "is damaged"),
        ({"facts": {"priors": {}}}, "is damaged"),
        ({"facts": {"colour": "red"}}, "unknown entry: colour"),
        ({"arrays": {"labels": np.arange(12) // 3}}, "is damaged"),
        ({"arrays": {"labels": np.zeros(5, dtype=np.int64)}}, "is damaged"),
        ({"arrays": {"labels": np.zeros(12)}}, "is damaged"),
        ({"arrays": {"support": np.ones((11, 12), dtype=np.float32)}}, "is damaged"),
        ({"arrays": {"support": np.zeros((12, 12), dtype=np.float32)}}, "all zeros"),
        ({"arrays": {"thumbnail_sizes": np.ones(11, dtype=np.int64)}}, "is damaged"),
        ({"arrays": {"prior_prototypes": np.ones((10, 11))}}, "is damaged"),
        ({"arrays": {"prior_prototypes": np.ones((9, 12))}}, "is damaged"),
        ({"arrays": {"prior_prototypes": np.full((10, 12), np.nan)}}, "has NaN"),
        ({"arrays": {"prior_gains": np.ones(5)}}, "is damaged"),
        ({"arrays": {"prior_names": np.ones(5)}}, "unknown array: prior_names"),
        ({"without": ["thumbnails"]}, "lacks the array thumbnails"),
        ({"without": ["prior_prototypes"]}, "is damaged"),
        ({"without": ["prior_axes"]}, "is damaged"),
        ({"header": {"version": "1"}}, "has version 1"),
        ({"header": {"facts": "[]"}}, "no table of facts"),
        ({"header": {"facts": "{"}}, "is damaged"),
    ],
)
def test_a_file_whose_parts_disagree_is_refused(classifier, colour_priors, tmp_path, change, sentence):
    model = ImageClassifier(Colours(), classifier.examples, colour_priors)
    path = changed(saved(model, tmp_path / "model.safetensors"), **change)
    with pytest.raises(InputError, match=sentence):
        ImageClassifier.load(path, Colours())


def test_a_failed_save_leaves_the_old_file(classifier, tmp_path):
    path = saved(classifier, tmp_path / "model.safetensors")
    before = path.read_bytes()
    example = classifier.examples[0]
    broken = classifier.with_examples(
        [Example("\ud800.jpg", example.label, example.features, b""), *classifier.examples]
    )
    with pytest.raises(InputError, match="half a character"):
        broken.save(path)
    assert path.read_bytes() == before
    with pytest.raises(InputError, match="is not a folder. Make it first"):
        classifier.save(tmp_path / "none" / "model.safetensors")


@pytest.mark.data
def test_photos_of_birds_are_labelled_as_well_as_their_reference_features(data_folder, tmp_path):
    with np.load(data_folder / "photos-lite0.npz") as reference:
        features, paths = reference["features"], reference["paths"].tolist()
    names = np.array([path.partition("/")[0] for path in paths])
    order = np.argsort(paths)
    support = np.sort(np.concatenate([order[names[order] == name][:5] for name in np.unique(names)]))
    rest = np.setdiff1d(np.arange(len(paths)), support)
    table = tmp_path / "support.csv"
    rows = [f"{data_folder.resolve() / 'photos' / paths[i]},{names[i]}" for i in support]
    table.write_text("\n".join(["path,label", *rows]))
    classifier = ImageClassifier.from_folder(table, reject=None)
    found = labels_of(classifier.predict(data_folder / "photos" / paths[i] for i in rest))
    estimator = P3DCClassifier(classifier.priors).fit(features[support], names[support])
    expected = np.mean(estimator.predict(features[rest]) == names[rest])
    assert len(rest) == 110
    assert expected > 0.7
    assert np.mean(np.array(found) == names[rest]) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    "change",
    [
        {"support": np.full((6, 12), np.nan, np.float32)},
        {"support": np.ones((6, 5), np.float32)},
        {"support": np.ones(6, np.float32)},
        {"labels": np.array([-1, 0, 0, 1, 1, 1])},
        {"thumbnail_sizes": np.ones(6, np.int64)},
        {"thumbnail_sizes": -np.ones(6, np.int64)},
        {"thumbnails": np.zeros((2, 3), np.uint8)},
    ],
)
def test_arrays_that_make_no_sense_are_refused(tmp_path, change):
    backbone = Colours()
    n_features = backbone.n_features
    rng = np.random.default_rng(0)
    examples = [Example(f"{i}.jpg", "ab"[i // 3], rng.random(n_features, np.float32), b"jpeg") for i in range(6)]
    path = tmp_path / "model.safetensors"
    ImageClassifier(backbone, examples).save(path)
    names = ["support", "labels", "thumbnails", "thumbnail_sizes"]
    facts = [*file.FACTS, "backbone", "keys", "unlabelled_keys"]
    arrays, found = read_arrays(path, "images", VERSION, required=names, facts=facts)
    write_arrays(path, "images", VERSION, arrays | change, found)
    with pytest.raises(InputError, match="model.safetensors"):
        ImageClassifier.load(path, backbone)
