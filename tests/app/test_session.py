"""What the page shows, against classifiers made anew at each point."""

import numpy as np
import pytest
from PIL import Image

from p3dc import ImageClassifier, Priors
from p3dc.app import taught as taught_photos
from p3dc.images.examples import Example, open_thumbnail, thumbnail
from p3dc.images.explanation import explain_features
from p3dc.priors.central import CentralRow
from tests.app.conftest import COLOURS, add, files, make, picture, teach, told

POINTS = [None, (0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.3, 0.5), (0.2, 0.2)]


def query(point):
    return {} if point is None else {"alpha": point[0], "beta": point[1]}


def anew(client, point=None, leave_out=None):
    """A classifier of what a project holds, made from nothing."""
    _, state, pictures = client.project.now()
    examples = [
        Example(photo.id, state.names[photo.label], pictures[photo.id].features, pictures[photo.id].thumbnail)
        for photo in state.photos
        if photo.label is not None and photo.id != leave_out
    ]
    priors = client.project.priors(state.priors)
    return ImageClassifier(client.project.backbone, examples, priors, reject=state.reject, point=point)


def refined(client, point=None):
    """The same, refined with the photos to be labelled where the point is not set by hand."""
    found, asked = anew(client, point), [photo.id for photo in client.project.state.to_label]
    return found.with_unlabelled(features(client, *asked), asked) if point is None else found


def features(client, *photos):
    return np.stack([client.project.pictures[identity].features for identity in photos])


def facts(prediction):
    return {
        "label": prediction.label,
        "unknown": prediction.rejected,
        "probability": pytest.approx(prediction.probability, abs=1e-9),
        "runner_up": prediction.runner_up,
        "runner_up_probability": pytest.approx(prediction.runner_up_probability, abs=1e-9),
    }


def view(client, point=None):
    answer = client.get("/v1/view", params=query(point))
    assert answer.status_code == 200, answer.text
    return answer.json()


def plain(view):
    """The labels of a view without what is said about them."""
    return [{k: v for k, v in label.items() if k not in ("doubt", "typicality")} for label in view["labels"]]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("known", [True, False])
def test_labels_at_a_point_are_those_of_a_classifier_at_that_point(serve, base, point, known):
    client = serve(priors=base if known else "none")
    teach(client)
    colours = [*COLOURS.values(), (240, 240, 240), (100, 100, 30)]
    asked = add(client, None, *(picture(colour, 900 + n) for n, colour in enumerate(colours)))
    classifier = refined(client, point)
    expected = classifier.label_unlabelled() if point is None else classifier.label(features(client, *asked))
    found = view(client, point)
    assert plain(found) == [{"id": identity, **facts(each)} for identity, each in zip(asked, expected, strict=True)]
    own = anew(client).calibrated
    assert found["auto"] == (point is None)
    assert (found["alpha"], found["beta"]) == pytest.approx((own.alpha, own.beta) if point is None else point)
    assert found["auto_point"] == {"alpha": own.alpha, "beta": own.beta}
    assert found["relevance"] == own.relevance
    assert (found["relevance"] is None) == (not known)


def test_some_photos_are_unknown_and_some_are_not(taught):
    assert [each["unknown"] for each in view(taught)["labels"]] == [False, False, False, True]
    assert [each["label"] for each in view(taught)["labels"]] == [*COLOURS, "unknown"]


def test_the_point_of_the_project_counts_where_none_is_given(taught):
    taught.put("/v1/point", json={"alpha": 0.3, "beta": 0.5})
    at = {"alpha": 0.3, "beta": 0.5}
    own, given = view(taught), view(taught, (0.3, 0.5))
    assert sorted(own["order"]) == sorted(taught.asked)
    assert own == given | {"order": own["order"]}
    assert own["auto"] is False
    assert (own["alpha"], own["beta"]) == (0.3, 0.5)
    assert own["auto_point"] != at
    image = files(picture(COLOURS["rust"], 55))
    (labelled,) = taught.post("/v1/classify", files=image).json()["predictions"]
    explained = taught.post("/v1/explain", files=image).json()
    assert labelled["probability"] == explained["probability"]
    assert (explained["alpha"], explained["beta"]) == (0.3, 0.5)


def test_every_change_is_seen(taught):
    first = view(taught)
    taught.delete(f"/v1/photos/{taught.asked[0]}")
    assert view(taught)["revision"] == first["revision"] + 1
    assert len(view(taught)["labels"]) == 3
    taught.post("/v1/undo")
    assert view(taught)["labels"] == first["labels"]


def test_a_project_that_is_not_ready_says_what_it_needs(client):
    empty = view(client)
    assert empty == {
        "revision": 0,
        "ready": False,
        "hint": "Add photos of two classes to get labels.",
        "auto": True,
        "alpha": None,
        "beta": None,
        "auto_point": None,
        "relevance": None,
        "labels": [],
        "order": [],
        "unknown_below": None,
        "unknown_chosen": None,
        "pile": None,
        "map": None,
        "duplicates": [],
        "misfiled": [],
    }
    add(client, make(client, "one"), picture())
    assert view(client)["hint"] == "Add photos of a second class to get labels."
    held = client.get("/v1/leave-one-out").json()
    assert held["hint"] == "Add photos of a second class to get labels."
    assert (held["accuracy"], held["asked"], held["of"]) == (None, 0, 0)
    add(client, make(client, "two"), picture(COLOURS["teal"]))
    assert view(client)["ready"]
    held = client.get("/v1/leave-one-out").json()
    assert held["hint"] == "Add a second photo to a class to see how the others label it."
    assert held["accuracy"] is None


def test_one_photo_of_each_of_two_classes_is_enough(client):
    add(client, make(client, "one"), picture())
    add(client, make(client, "two"), picture(COLOURS["teal"]))
    (asked,) = add(client, None, picture(COLOURS["teal"], 3))
    for point in POINTS:
        expected = refined(client, point).label(features(client, asked))
        assert plain(view(client, point)) == [{"id": asked, **facts(expected[0])}]


def test_the_map_holds_everything_in_its_square_on_axes_that_do_not_move(taught):
    found = {point: view(taught, point)["map"] for point in POINTS}
    ids = {photo["id"]: photo["class"] for photo in taught.get("/v1/project").json()["photos"]}
    for drawn in found.values():
        assert {each["id"]: each["class"] for each in drawn["support"]} == {k: v for k, v in ids.items() if v}
        assert [each["class"] for each in drawn["prototypes"]] == [taught.classes[name] for name in sorted(COLOURS)]
        assert [each["id"] for each in drawn["queries"]] == taught.asked
        places = [each[at] for each in drawn["support"] for at in ("from", "to")]
        places += [each["at"] for kind in ("prototypes", "queries") for each in drawn[kind]]
        assert np.abs(places).max() <= 1
        assert [each["from"] for each in drawn["support"]] == [each["from"] for each in found[None]["support"]]
        np.testing.assert_allclose(
            [each["at"] for each in drawn["queries"]], [each["at"] for each in found[None]["queries"]], atol=1e-9
        )
    for each in found[(0.0, 0.0)]["support"]:
        assert each["from"] == pytest.approx(each["to"], abs=1e-9), "at α = β = 0 nothing moves"
    assert found[(0.0, 1.0)]["support"] != found[(1.0, 0.0)]["support"]


def test_the_same_photo_twice_and_one_in_the_wrong_class_are_found(taught):
    (twin,) = add(taught, taught.classes["olive"], picture(COLOURS["olive"], 0))
    (lost,) = add(taught, taught.classes["rust"], picture(COLOURS["teal"], 321))
    original = next(each.id for each in taught.project.state.photos if each.label == taught.classes["olive"])
    found = view(taught)
    assert found["duplicates"] == [[original, twin]]
    assert found["misfiled"] == [{"id": lost, "nearer_to": "teal"}]


@pytest.mark.parametrize("point", POINTS)
def test_leave_one_out_is_what_the_others_say(taught, point):
    add(taught, taught.classes["rust"], picture(COLOURS["teal"], 321))
    add(taught, make(taught, "alone"), picture((250, 30, 250)))
    wrong, asked = [], 0
    for photo in taught.project.state.photos:
        if photo.label is None or taught.project.state.names[photo.label] == "alone":
            continue
        rest = anew(taught, point, leave_out=photo.id)
        best = rest.classes[int(rest.fitted.score(features(taught, photo.id)).cosines[0].argmax())]
        asked += 1
        if best != taught.project.state.names[photo.label]:
            wrong.append(photo.id)
    found = taught.get("/v1/leave-one-out", params=query(point)).json()
    assert sorted(found["wrong"]) == sorted(wrong)
    assert (found["asked"], found["of"], found["right"]) == (asked, asked, asked - len(wrong))
    assert found["accuracy"] == pytest.approx(1 - len(wrong) / asked)
    assert found["hint"] is None


@pytest.mark.parametrize("point", POINTS)
def test_an_explanation_is_that_of_a_classifier_at_that_point(taught, point):
    asked = taught.asked[3]
    expected = explain_features(refined(taught, point), features(taught, asked)[0], "asked 3.png", b"")
    found = taught.get(f"/v1/photos/{asked}/explanation", params=query(point)).json()
    assert found["name"] == "asked 3.png"
    [shown] = [each for each in view(taught, point)["labels"] if each["id"] == asked]
    said = set(shown) - {"id", "doubt", "typicality"}
    assert {key: found[key] for key in said} == {key: shown[key] for key in said}
    assert found["label"] == expected.prediction.label
    assert found["probability"] == pytest.approx(expected.prediction.probability, abs=0.01)
    assert found["unknown_below"] == pytest.approx(expected.unknown_below, abs=1e-9)
    assert {each["label"]: each["cosine"] for each in found["cosines"]} == pytest.approx(expected.cosines, abs=1e-9)
    cosines = [each["cosine"] for each in found["cosines"]]
    assert cosines == sorted(cosines, reverse=True)
    assert len(found["neighbours"]) == 5
    for near, right in zip(found["neighbours"], expected.neighbours, strict=True):
        assert (near["id"], near["label"]) == (right.example.key, right.example.label)
        assert near["cosine"] == pytest.approx(right.cosine, abs=1e-9)
        assert taught.project.state.photo(near["id"]).name == near["name"]
    assert found["base_classes"] is None


def test_an_example_is_explained_by_its_base_classes_and_is_no_neighbour_of_itself(taught):
    photo = next(each for each in taught.project.state.photos if each.label)
    found = taught.get(f"/v1/photos/{photo.id}/explanation", params=query((0.0, 1.0))).json()
    assert photo.id not in [near["id"] for near in found["neighbours"]]
    weights = [each["weight"] for each in found["base_classes"]]
    assert weights
    assert weights == sorted(weights, reverse=True)
    assert 0 < sum(weights) <= 1 + 1e-9
    assert found["base_classes"][0]["name"].startswith("colour ")


def test_a_cluster_shows_its_central_photos(serve, base):
    jpeg = thumbnail(Image.new("RGB", (30, 20), "teal"))
    central = [[CentralRow("dir/a b.jpg", jpeg), CentralRow("17")]] * 5 + [[]] * 15
    clusters = np.arange(20) < 5
    client = serve(
        priors=Priors(base.prototypes, base.class_names, geometry=base.geometry, clusters=clusters, central=central)
    )
    teach(client)
    photo = client.project.state.photos[0]
    found = client.get(f"/v1/photos/{photo.id}/explanation", params=query((0.0, 1.0))).json()
    pulls = [pull for near in found["neighbours"] for pull in near["base_classes"]]
    shown = [pull for pull in pulls if pull["central"]]
    assert shown
    assert {pull["name"] for pull in shown} <= {f"colour {n}" for n in range(5)}
    for pull in shown:
        first, second = pull["central"]
        assert (first["name"], second) == ("dir/a b.jpg", {"name": "17", "thumbnail": None})
        answer = client.get(first["thumbnail"])
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/jpeg")
        assert open_thumbnail(answer.content).size == (30, 20)
    folder = first["thumbnail"].rsplit("/", 1)[0]
    for nothing in (f"{folder}/1", f"{folder}/2", f"{folder}/-1", "/v1/priors/backbone/colour 0/0"):
        told(client.get(nothing), 404, "not_found")
    told(client.get(f"{folder}/first"), 422, "invalid")


def test_without_priors_no_base_class_is_named(serve):
    client = serve(priors="none", reject=None)
    teach(client)
    photo = client.project.state.photos[0]
    found = client.get(f"/v1/photos/{photo.id}/explanation").json()
    assert found["base_classes"] == []
    assert found["unknown_below"] is None
    assert all(near["base_classes"] == [] for near in found["neighbours"])


def test_images_are_labelled_and_explained_without_being_kept(taught):
    before = taught.get("/v1/project").json()
    images = [("rust.png", picture(COLOURS["rust"], 70)), ("x.txt", b"x"), ("teal.png", picture(COLOURS["teal"], 71))]
    answer = taught.post("/v1/classify", files=files(*images)).json()
    assert [(each["name"], each["label"]) for each in answer["predictions"]] == [
        ("rust.png", "rust"),
        ("teal.png", "teal"),
    ]
    assert [each["name"] for each in answer["failures"]] == ["x.txt"]
    found = taught.post("/v1/explain", files=files(images[0]), params=query((0.3, 0.5))).json()
    assert (found["name"], found["label"], found["alpha"], found["beta"]) == ("rust.png", "rust", 0.3, 0.5)
    assert "2 images in the request. Send one." in told(
        taught.post("/v1/explain", files=files(images[0], images[2])), 422, "invalid"
    )
    told(taught.post("/v1/explain", files=files(b"x")), 415, "not_an_image")
    assert taught.get("/v1/project").json() == before


def test_the_same_image_gets_the_same_label_kept_or_not(taught):
    image = picture(COLOURS["olive"], 72)
    (asked,) = add(taught, None, image)
    shown = view(taught)["labels"][-1]
    (labelled,) = taught.post("/v1/classify", files=files(image)).json()["predictions"]
    assert (shown["id"], labelled["name"]) == (asked, "0.png")
    for key, value in labelled.items():
        if key != "name":
            assert shown[key] == (pytest.approx(value, abs=0.01) if isinstance(value, float) else value)


def test_photos_to_be_labelled_help_and_those_like_no_class_are_grouped(taught):
    first = view(taught)["pile"]["used"]
    more = add(taught, None, *(picture(c, 500 + 10 * n + k) for n, c in enumerate(COLOURS.values()) for k in range(4)))
    assert view(taught)["pile"]["used"] > first > 0
    others = add(taught, None, *(picture((170, 130, 250), 300 + k) for k in range(5)))
    found = view(taught)
    (group,) = found["pile"]["groups"]
    assert sorted(group) == sorted([taught.asked[3], *others])
    assert group == refined(taught).groups[0]
    labels = {each["id"]: each["label"] for each in found["labels"]}
    assert [labels[identity] for identity in more] == [name for name in COLOURS for _ in range(4)]
    assert {labels[identity] for identity in group} == {"unknown"}
    made = make(taught, "violet")
    for identity in group:
        taught.patch(f"/v1/photos/{identity}", json={"class": made})
    assert view(taught)["pile"]["groups"] == []


def test_a_point_set_by_hand_and_a_project_without_base_classes_take_no_help(taught, serve):
    assert view(taught)["pile"] is not None
    assert view(taught, (0.3, 0.5))["pile"] is None
    taught.put("/v1/point", json={"alpha": 0.3, "beta": 0.5})
    assert view(taught)["pile"] is None
    without = serve(priors="none")
    teach(without)
    add(without, None, picture())
    assert view(without)["pile"] is None


def test_a_photo_is_explained_with_the_label_that_it_is_shown_with(taught):
    add(taught, None, *(picture(COLOURS["teal"], 500 + k) for k in range(9)))
    for shown in view(taught)["labels"]:
        found = taught.get(f"/v1/photos/{shown['id']}/explanation").json()
        said = set(shown) - {"id", "doubt", "typicality"}
        assert {key: found[key] for key in said} == {key: shown[key] for key in said}
        assert found["unknown"] == (found["cosines"][0]["cosine"] < found["unknown_below"])


def test_a_model_file_labels_as_the_page_does(taught, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(taught.get("/v1/model").content)
    model = ImageClassifier.load(path, taught.project.backbone)
    assert model.unlabelled_keys == tuple(f"asked {n}.png" for n in range(4))
    image = picture(COLOURS["rust"], 55)
    (found,) = taught.post("/v1/classify", files=files(image)).json()["predictions"]
    (new,) = add(taught, None, image)
    assert {key: found[key] for key in found if key != "name"} == facts(model.label(features(taught, new))[0])


def count_whitened(base, monkeypatch):
    """Return a list that grows by the number of rows whenever some are whitened."""
    whitened = []
    real = type(base.geometry).whiten

    def counted(self, rows):
        whitened.append(len(rows))
        return real(self, rows)

    monkeypatch.setattr(type(base.geometry), "whiten", counted)
    return whitened


def test_moving_the_point_whitens_nothing(taught, base, monkeypatch):
    view(taught)
    view(taught, POINTS[1])
    taught.get("/v1/leave-one-out", params=query(POINTS[1]))
    whitened = count_whitened(base, monkeypatch)
    for point in POINTS:
        assert view(taught, point)["labels"]
        assert taught.get("/v1/leave-one-out", params=query(point)).json()["asked"]
    assert whitened == []
    taught.post("/v1/classify", files=files(picture()))
    assert whitened == [1], "the count sees what is whitened"


def test_what_depends_on_taught_photos_is_kept_until_they_change(taught, monkeypatch):
    made = []
    real = taught_photos.LeaveOneOut

    def counted(*arguments):
        made.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(taught_photos, "LeaveOneOut", counted)
    for point in POINTS:
        taught.get("/v1/leave-one-out", params=query(point))
    assert len(made) == 1
    held = taught.get("/v1/leave-one-out").json()
    taught.delete(f"/v1/photos/{taught.asked[0]}")
    assert taught.get("/v1/leave-one-out").json() == held | {"revision": held["revision"] + 1}
    assert len(made) == 1
    taught.patch(f"/v1/photos/{taught.asked[1]}", json={"class": taught.classes["rust"]})
    taught.get("/v1/leave-one-out")
    assert len(made) == 2


def test_a_new_photo_is_whitened_and_the_others_are_not(taught, base, monkeypatch):
    before = taught.get("/v1/view", params={"pile": False}).json()
    whitened = count_whitened(base, monkeypatch)
    (new,) = add(taught, None, picture(COLOURS["teal"], 77))
    after = taught.get("/v1/view", params={"pile": False}).json()
    assert whitened == [1]
    assert after["labels"][:-1] == before["labels"]
    assert after["pile"] is None
    expected = anew(taught).label(features(taught, *taught.asked, new))
    assert plain(after) == [
        {"id": identity, **facts(each)} for identity, each in zip([*taught.asked, new], expected, strict=True)
    ]


def test_doubt_is_how_near_the_two_likeliest_classes_are(taught):
    for label in view(taught)["labels"]:
        if not label["unknown"]:
            assert label["doubt"] == pytest.approx(1 - label["probability"] + label["runner_up_probability"])
        assert 0 <= label["doubt"] <= 1


def test_every_photo_has_its_place_in_the_order(taught):
    assert sorted(view(taught)["order"]) == sorted(taught.asked)
    assert view(taught, (0.1, 0.2))["order"] == []


def test_a_threshold_decides_what_is_unknown_until_it_is_undone(taught):
    before = view(taught)
    assert before["unknown_below"] == before["unknown_chosen"] == pytest.approx(anew(taught).fitted.unknown_below)
    grouped = {identity for group in before["pile"]["groups"] for identity in group}
    middle = sorted(label["typicality"] for label in before["labels"])[2]
    assert taught.put("/v1/unknown", json={"below": middle + 1e-9}).status_code == 200
    for point in (None, (0.2, 0.2)):
        found = view(taught, point)
        assert found["unknown_below"] == middle + 1e-9
        for label in found["labels"]:
            below = label["typicality"] < middle + 1e-9
            assert label["unknown"] == (below or (point is None and label["id"] in grouped))
    assert view(taught)["unknown_chosen"] == before["unknown_chosen"]
    assert taught.get("/v1/project").json()["unknown_below"] == middle + 1e-9
    taught.post("/v1/undo")
    assert view(taught)["labels"] == before["labels"]
    told(taught.put("/v1/unknown", json={"below": "low"}), 422, "invalid")


def test_a_project_without_unknown_has_no_threshold(serve):
    client = serve(reject=None)
    teach(client)
    assert view(client)["unknown_below"] is None
    assert "calls no photo unknown" in told(client.put("/v1/unknown", json={"below": 0.5}), 409, "conflict")


def test_the_confusion_counts_what_each_example_was_taken_for(taught):
    held = taught.get("/v1/leave-one-out").json()
    names = [taught.project.state.names[each] for each in held["confusion"]["classes"]]
    assert names == sorted(COLOURS)
    counts = np.array(held["confusion"]["counts"])
    assert (counts.sum(), np.trace(counts)) == (held["asked"], held["right"])
    assert counts.sum(axis=1).tolist() == [4, 4, 4]
    assert held["sampled"] is False
