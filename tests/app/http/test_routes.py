"""What can be asked of the service, and what it answers."""

import csv
import io
import re

import pytest
from PIL import Image

from p3dc.app.http import responses
from p3dc.app.project.state import ProjectLimits
from tests.app.conftest import COLOURS, NOWHERE, add, files, make, picture, teach, told


def project_of(client):
    answer = client.get("/v1/project")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_an_empty_project_tells_all_there_is(client):
    found = project_of(client)
    assert found == {
        "revision": 0,
        "name": "",
        "kept_in": None,
        "backbone": "mosaic",
        "n_base_classes": 20,
        "priors": "own",
        "reject": 0.2,
        "unknown_below": None,
        "point": None,
        "classes": [],
        "photos": [],
        "originals": {"keep": False, "photos": 0},
        "undo": None,
        "redo": None,
        "limits": {
            "files": 50,
            "bytes": 64 * 2**20,
            "pixels": 50_000_000,
            "photos": 2000,
            "classes": 100,
            "name": 100,
        },
    }


def test_a_project_in_a_folder_tells_where_it_is(serve, tmp_path):
    assert project_of(serve(tmp_path, priors="none")) | {"limits": None} == {
        "revision": 0,
        "name": tmp_path.name,
        "kept_in": str(tmp_path),
        "backbone": "mosaic",
        "n_base_classes": 0,
        "priors": "none",
        "reject": 0.2,
        "unknown_below": None,
        "point": None,
        "classes": [],
        "photos": [],
        "originals": {"keep": False, "photos": 0},
        "undo": None,
        "redo": None,
        "limits": None,
    }


def test_health_tells_what_runs_and_what_it_holds(taught):
    answer = taught.get("/v1/health").json()
    assert re.fullmatch(r"\d+\.\d+.*", answer.pop("version"))
    assert answer == {"status": "ok", "backbone": "mosaic", "classes": 3, "examples": 12}


def test_a_class_is_made_renamed_and_deleted(client):
    answer = client.post("/v1/classes", json={"name": "  cat "})
    assert answer.status_code == 201
    identity = answer.json()["id"]
    assert answer.json() == {"revision": 1, "id": identity}
    assert client.patch(f"/v1/classes/{identity}", json={"name": "lynx"}).json() == {"revision": 2}
    assert project_of(client)["classes"] == [{"id": identity, "name": "lynx"}]
    assert project_of(client)["undo"] == "Rename cat"
    assert client.delete(f"/v1/classes/{identity}").json() == {"revision": 3}
    assert project_of(client)["classes"] == []
    assert project_of(client)["undo"] == "Delete lynx"


def test_a_class_is_made_of_photos_in_one_change(taught):
    before, group = project_of(taught), taught.asked[1:]
    made = taught.post("/v1/classes", json={"name": "violet", "photos": group})
    assert made.status_code == 201
    after = project_of(taught)
    assert after["revision"] == before["revision"] + 1
    assert after["undo"] == "New class violet"
    assert [photo["id"] for photo in after["photos"] if photo["class"] == made.json()["id"]] == group
    taught.post("/v1/undo")
    undone = project_of(taught)
    assert (undone["classes"], undone["photos"]) == (before["classes"], before["photos"])
    told(taught.post("/v1/classes", json={"name": "violet", "photos": [group[0], NOWHERE]}), 404, "not_found")
    told(taught.post("/v1/classes", json={"name": "rust", "photos": group}), 409, "conflict")
    assert project_of(taught) == undone, "nothing is changed by half"


def test_a_name_is_refused_that_is_empty_taken_too_long_or_reserved_for_unknown_photos(client):
    cat = make(client, "cat")
    make(client, "dog")
    for method, path in (("POST", "/v1/classes"), ("PATCH", f"/v1/classes/{cat}")):
        assert "empty" in told(client.request(method, path, json={"name": " \x00\n"}), 422, "invalid")
        assert "'dog' already" in told(client.request(method, path, json={"name": "dog "}), 409, "conflict")
        assert "101 characters" in told(client.request(method, path, json={"name": "x" * 101}), 422, "invalid")
        assert "1000" in told(client.request(method, path, json={"name": "x" * 1001}), 422, "invalid")
        assert "'unknown'" in told(client.request(method, path, json={"name": "unknown"}), 422, "invalid")
    assert project_of(client)["revision"] == 2


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/v1/classes/{}", {"name": "x"}),
        ("DELETE", "/v1/classes/{}", None),
        ("PATCH", "/v1/photos/{}", {"name": "x"}),
        ("DELETE", "/v1/photos/{}", None),
        ("GET", "/v1/photos/{}/thumbnail", None),
        ("GET", "/v1/photos/{}/explanation", None),
    ],
)
def test_what_is_not_there_is_not_found(client, method, path, body):
    sentence = told(client.request(method, path.format(NOWHERE), json=body), 404, "not_found")
    assert sentence.endswith(f"'{NOWHERE}'. It may have been deleted.")


def test_examples_are_not_added_to_a_class_that_is_not_there(client):
    told(client.post(f"/v1/classes/{NOWHERE}/examples", files=files(picture())), 404, "not_found")


def test_examples_are_added_in_their_order_and_classes_list_them(client):
    cat = make(client, "cat")
    answer = client.post(f"/v1/classes/{cat}/examples", files=files(("a.png", picture()), ("b.png", picture(seed=1))))
    assert answer.status_code == 201
    added = answer.json()["added"]
    assert [(each["name"], each["class"]) for each in added] == [("a.png", cat), ("b.png", cat)]
    assert answer.json() == {"revision": 2, "added": added, "failures": []}
    waiting = add(client, None, ("c.png", picture(seed=2)))
    assert project_of(client)["photos"] == [
        *added,
        {"id": waiting[0], "name": "c.png", "class": None, "asked": True, "by": None, "key": ""},
    ]
    assert client.get("/v1/classes").json() == {
        "revision": 3,
        "classes": [{"id": cat, "name": "cat", "examples": added}],
    }
    assert project_of(client)["undo"] == "Add 1 photo"


def test_images_that_cannot_be_used_are_listed_with_those_that_can(client):
    images = [("good.png", picture()), ("page.html", b"<html>"), ("cut.png", picture()[:70])]
    answer = client.post("/v1/photos", files=files(*images))
    assert answer.status_code == 201
    assert [each["name"] for each in answer.json()["added"]] == ["good.png"]
    failures = answer.json()["failures"]
    assert [each["name"] for each in failures] == ["page.html", "cut.png"]
    assert failures[0]["message"].startswith("Its format is HTML")
    assert failures[1]["message"].startswith("Its format is PNG, but it is cut off or damaged")


def test_images_of_which_none_can_be_used_are_refused_with_the_reason_of_each(client):
    answer = client.post("/v1/photos", files=files(("a.txt", b"hello"), ("b.txt", b"GIF89a")))
    assert told(answer, 415, "not_an_image").startswith("a.txt: It is not a JPEG")
    assert [each["name"] for each in answer.json()["error"]["failures"]] == ["a.txt", "b.txt"]
    answer = client.post("/v1/photos", files=files(("a.txt", b"hello"), ("b.png", picture()[:70])))
    told(answer, 422, "invalid")
    assert project_of(client)["revision"] == 0


def test_a_photo_moves_is_renamed_and_moves_back(taught):
    rust, photo = taught.classes["rust"], taught.asked[0]
    path = f"/v1/photos/{photo}"

    def now():
        return next(each for each in project_of(taught)["photos"] if each["id"] == photo)

    assert taught.patch(path, json={"class": rust}).status_code == 200
    known = {"id": photo, "asked": True, "key": ""}
    assert now() == known | {"name": "asked 0.png", "class": rust, "by": "user"}
    assert taught.patch(path, json={"name": "new.png"}).status_code == 200
    assert now() == known | {"name": "new.png", "class": rust, "by": "user"}, "a class that is not given stays"
    assert taught.patch(path, json={"class": None}).status_code == 200
    assert now() == known | {"name": "new.png", "class": None, "by": None}, "a class that is null takes the photo out"
    assert taught.patch(path, json={"class": rust, "name": "../both.png"}).status_code == 200
    assert now() == known | {"name": "both.png", "class": rust, "by": "user"}
    assert project_of(taught)["undo"] == "Move new.png"


def test_a_photo_is_not_changed_by_nothing_nor_moved_to_nowhere(taught):
    path = f"/v1/photos/{taught.asked[0]}"
    before = project_of(taught)
    assert "Nothing is to be changed" in told(taught.patch(path, json={}), 422, "invalid")
    assert "There is no class" in told(taught.patch(path, json={"class": NOWHERE}), 422, "invalid")
    for other in ({"klass": None}, {"label": None}, {"class": 1}, {"name": 1}):
        told(taught.patch(path, json=other), 422, "invalid")
    assert taught.patch(path, json={"class": None}).json() == {"revision": before["revision"]}
    assert project_of(taught) == before


def test_a_photo_is_deleted_and_those_to_be_labelled_are_cleared(taught):
    assert taught.delete(f"/v1/photos/{taught.asked[0]}").status_code == 200
    assert len(project_of(taught)["photos"]) == 15
    assert taught.delete("/v1/photos").status_code == 200
    assert len(project_of(taught)["photos"]) == 12
    assert project_of(taught)["undo"] == "Clear photos"


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF"])
def test_a_small_picture_is_a_jpeg_whatever_was_sent_and_may_be_kept(client, kind):
    (photo,) = add(client, None, picture(kind=kind, size=(300, 200)))
    answer = client.get(f"/v1/photos/{photo}/thumbnail")
    assert answer.headers["content-type"] == "image/jpeg"
    assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
    small = Image.open(io.BytesIO(answer.content))
    assert small.format == "JPEG"
    assert small.size == ((75, 50) if kind == "JPEG" else (160, 107)), "a JPEG may be read smaller, see draft_scale"


def test_a_photo_that_was_deleted_has_a_picture_as_long_as_that_can_be_undone(taught):
    path = f"/v1/photos/{taught.asked[0]}/thumbnail"
    taught.delete(f"/v1/photos/{taught.asked[0]}")
    assert taught.get(path).status_code == 200
    taught.post("/v1/undo")
    taught.post("/v1/undo")  # before any photo was there
    told(taught.get(f"/v1/photos/{NOWHERE}/thumbnail"), 404, "not_found")


def test_every_change_is_undone_and_done_again(taught):
    rust, photo = taught.classes["rust"], taught.asked[0]
    steps = [
        lambda: taught.post("/v1/classes", json={"name": "new"}),
        lambda: taught.patch(f"/v1/classes/{rust}", json={"name": "red"}),
        lambda: taught.patch(f"/v1/photos/{photo}", json={"class": rust}),
        lambda: taught.delete(f"/v1/photos/{photo}"),
        lambda: taught.put("/v1/point", json={"alpha": 0.25, "beta": 0.5}),
        lambda: taught.delete("/v1/point"),
        lambda: taught.delete(f"/v1/classes/{rust}"),
        lambda: taught.delete("/v1/photos"),
    ]

    def held():
        return {key: value for key, value in project_of(taught).items() if key not in ("revision", "undo", "redo")}

    moments, revisions = [held()], [project_of(taught)["revision"]]
    for step in steps:
        answer = step()
        assert answer.is_success, answer.text
        moments.append(held())
        revisions.append(answer.json()["revision"])
    for moment in moments[-2::-1]:
        revisions.append(taught.post("/v1/undo").json()["revision"])
        assert held() == moment
    for moment in moments[1:]:
        revisions.append(taught.post("/v1/redo").json()["revision"])
        assert held() == moment
    assert revisions == list(range(revisions[0], revisions[0] + len(revisions)))
    assert "nothing to redo" in told(taught.post("/v1/redo"), 409, "conflict")


def test_there_is_nothing_to_undo_in_a_new_project(client):
    assert told(client.post("/v1/undo"), 409, "conflict") == "There is nothing to undo."
    assert told(client.post("/v1/redo"), 409, "conflict") == "There is nothing to redo."


def test_a_point_is_set_and_left_to_be_chosen_again(client):
    assert client.put("/v1/point", json={"alpha": 0.2, "beta": 0.8}).json() == {"revision": 1}
    assert project_of(client)["point"] == {"alpha": 0.2, "beta": 0.8}
    assert project_of(client)["undo"] == "α 0.20, β 0.80"
    assert client.put("/v1/point", json={"alpha": 0.2, "beta": 0.8}).json() == {"revision": 1}, "nothing changed"
    assert client.delete("/v1/point").json() == {"revision": 2}
    assert project_of(client)["point"] is None


@pytest.mark.parametrize(
    "body",
    [
        '{"alpha": 0.6, "beta": 0.6}',
        '{"alpha": -0.1, "beta": 0}',
        '{"alpha": NaN, "beta": 0}',
        '{"alpha": 1}',
        '{"alpha": false, "beta": 0}',
        '{"alpha": "0.5", "beta": 0}',
    ],
)
def test_a_point_outside_the_triangle_is_refused(client, body):
    told(client.put("/v1/point", content=body, headers={"Content-Type": "application/json"}), 422, "invalid")
    assert project_of(client)["revision"] == 0


@pytest.mark.parametrize("query", ["alpha=0.1", "beta=0.1", "alpha=0.6&beta=0.6", "alpha=x&beta=0", "alpha=nan&beta=0"])
@pytest.mark.parametrize("path", ["view", "leave-one-out"])
def test_a_point_in_an_address_is_whole_and_in_the_triangle(client, path, query):
    told(client.get(f"/v1/{path}?{query}"), 422, "invalid")


def test_labels_are_a_table_in_which_no_name_is_a_formula(client):
    teach(client, colours={"=1+1": COLOURS["olive"], "@rust": COLOURS["rust"]})
    names = ["=HYPERLINK(1).png", "-1.png", "plain, with comma.png", "it's.png"]
    asked = add(client, None, *((name, picture(COLOURS["olive"], 800 + n)) for n, name in enumerate(names)))
    answer = client.get("/v1/labels")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="p3dc-labels.csv"'
    table = list(csv.reader(io.StringIO(answer.text)))
    assert table[0] == ["path", "label", "probability", "runner_up", "runner_up_probability", "failure", "by"]
    assert [row[0] for row in table[1:]] == ["'=HYPERLINK(1).png", "'-1.png", *names[2:]]
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in table for cell in row)
    shown = {each["id"]: each for each in client.get("/v1/view").json()["labels"]}
    for identity, row in zip(asked, table[1:], strict=True):
        assert row[1].removeprefix("'") == shown[identity]["label"]
        assert float(row[2]) == pytest.approx(shown[identity]["probability"], abs=5e-5)


@pytest.mark.parametrize("path", ["/v1/labels", "/v1/model"])
def test_nothing_is_handed_out_before_two_classes_have_photos(client, path):
    assert told(client.get(path), 409, "conflict") == "Add photos of two classes to get labels."
    add(client, make(client, "one"), picture())
    make(client, "empty")
    assert told(client.get(path), 409, "conflict") == "Add photos of a second class to get labels."


@pytest.mark.parametrize("path", ["/v1/classify", "/v1/explain"])
def test_images_are_not_labelled_before_two_classes_have_photos(client, path):
    assert told(client.post(path, files=files(picture())), 409, "conflict").startswith("Add photos of two classes")


def test_the_example_set_fills_an_empty_project_and_no_other(serve):
    client = serve(priors="none")
    answer = client.post("/v1/drawings")
    assert answer.status_code == 201
    assert answer.json() == {"revision": 1}
    found = project_of(client)
    assert len(found["classes"]) == 5
    assert found["undo"] == "Example set"
    assert found["priors"] == "none"
    examples = [photo for photo in found["photos"] if photo["class"]]
    assert len(examples) == 10
    assert len(found["photos"]) == 22
    assert client.get("/v1/view").json()["ready"]
    assert "not empty" in told(client.post("/v1/drawings"), 409, "conflict")
    client.post("/v1/undo")
    assert project_of(client)["photos"] == []


@pytest.mark.parametrize("whose", ["backbone", "own"])
def test_the_example_set_leaves_own_priors_and_those_of_other_backbones(serve, base, whose):
    client = serve(priors=base if whose == "own" else "backbone")
    client.post("/v1/drawings")
    assert project_of(client)["priors"] == whose


def test_the_example_set_leaves_a_class_without_photos_alone(client):
    make(client, "mine")
    told(client.post("/v1/drawings"), 409, "conflict")
    assert [each["name"] for each in project_of(client)["classes"]] == ["mine"]


def test_metrics_count_answers_images_and_batches(taught):
    taught.get("/v1/nothing")
    taught.get(f"/v1/photos/{NOWHERE}/thumbnail")
    answer = taught.get("/v1/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    found = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
    assert float(found["p3dc_images"]) == 16
    assert 4 <= float(found["p3dc_batches"]) <= 16
    assert float(found["p3dc_classes"]) == 3
    assert float(found["p3dc_photos"]) == 16
    assert float(found["p3dc_requests_busy"]) == 1
    assert float(found['p3dc_requests_total{method="POST",route="/v1/classes",status="201"}']) == 3
    assert float(found['p3dc_requests_total{method="GET",route="/v1/photos/{identity}/thumbnail",status="404"}']) == 1
    assert float(found['p3dc_requests_total{method="GET",route="none",status="404"}']) == 1
    assert float(found['p3dc_request_seconds_count{route="/v1/classes"}']) == 3
    assert NOWHERE not in answer.text


def test_what_is_nowhere_and_what_is_not_taken_are_errors_of_the_one_shape(client):
    sentence = told(client.get("/v1/nothing%7Bx%7D"), 404, "not_found")
    assert sentence == "There is nothing at /v1/nothing{x}. /v1/openapi.json tells what there is."
    answer = client.put("/v1/undo")
    assert told(answer, 405, "method_not_allowed").startswith("/v1/undo does not take PUT.")
    assert answer.headers["allow"] == "POST"
    told(client.get("/page/../../pyproject.toml"), 404, "not_found")
    told(client.get("/page/%2e%2e/api.py"), 404, "not_found")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"[]", 422),
        (b'{"name": 1}', 422),
        (b'{"name": "a", "id": "b"}', 422),
        (b'{"name": "\\ud800"}', 422),
        (b"\xff\xfe", 422),
        (b"[" * 60_000, 400),
        (b'{"name": ' + b"1" * 5000 + b"}", 400),
    ],
)
def test_a_body_that_is_not_what_is_asked_for_is_an_error_of_the_one_shape(client, body, status):
    answer = client.post("/v1/classes", content=body, headers={"Content-Type": "application/json"})
    sentence = told(answer, status, "invalid" if status == 422 else "bad_request")
    assert not sentence[0].isdigit()
    assert project_of(client)["revision"] == 0


@pytest.mark.parametrize("body", [b'{"class": "\\ud800"}', b'{"name": "\\ud800.png"}', b'{"class": "\\u0000"}'])
def test_half_a_character_breaks_nothing(taught, body):
    path = f"/v1/photos/{taught.asked[0]}"
    answer = taught.patch(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (200, 404, 422), answer.text
    project_of(taught)


def test_what_nobody_foresaw_is_an_error_of_the_one_shape(serve, monkeypatch):
    client = serve(raises=False)
    monkeypatch.setattr(responses, "view", lambda *_, **__: 1 / 0)
    sentence = told(client.get("/v1/view"), 500, "internal")
    assert sentence == "Something went wrong here (ZeroDivisionError). The server's log tells more."
    assert project_of(client)["revision"] == 0, "and the service goes on"


def test_a_disk_that_is_full_is_told_and_no_photo_is_promised(serve, tmp_path):
    client = serve(tmp_path)
    (pages,) = client.project.store._database.execute("PRAGMA page_count").fetchone()
    client.project.store._database.execute(f"PRAGMA max_page_count = {pages}")
    noise = Image.effect_noise((160, 160), 90).convert("RGB")
    written = io.BytesIO()
    noise.save(written, "PNG")
    assert "full" in told(client.post("/v1/photos", files=files(written.getvalue())), 500, "storage")
    assert project_of(client)["photos"] == []


def test_a_full_project_takes_no_more(serve):
    client = serve(project_limits=ProjectLimits(photos=2, classes=1))
    make(client, "one")
    assert "1 classes already" in told(client.post("/v1/classes", json={"name": "two"}), 409, "conflict")
    add(client, None, picture(), picture(seed=1))
    assert "holds 2" in told(client.post("/v1/photos", files=files(picture(seed=2))), 409, "conflict")


def test_the_page_is_served_with_its_parts(client):
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    parts = re.findall(r'(?:src|href)="(/?page/[^"]+)"', page.text)
    assert parts
    for part in parts:
        assert client.get("/" + part.lstrip("/")).status_code == 200
    assert client.head("/").status_code == 200


def test_every_answer_is_kept_from_doing_harm(taught):
    for path in ("/", "/v1/project", "/v1/nothing", f"/v1/photos/{taught.asked[0]}/thumbnail", "/v1/labels"):
        headers = taught.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
    assert taught.get("/v1/project").headers["cache-control"] == "no-store"
    assert taught.get("/v1/nothing").headers["cache-control"] == "no-store"


def test_a_script_in_a_name_comes_back_as_text_and_nothing_else(client):
    script = "<script>alert(1)</script>"
    made = make(client, script)
    (photo,) = add(client, made, (f"{script}.png", picture()))
    add(client, make(client, "other"), picture(COLOURS["teal"]))
    add(client, None, (f"<img src=x onerror=alert(1)>{script}.png", picture()))
    for path in ("project", "classes", "view", "leave-one-out", f"photos/{photo}/explanation"):
        answer = client.get(f"/v1/{path}")
        assert answer.headers["content-type"] == "application/json"
        assert answer.status_code == 200
    assert project_of(client)["classes"][0]["name"] == script
    assert script not in client.get("/").text
    assert script not in client.get("/v1/metrics").text


def test_a_project_that_never_says_unknown_may_have_a_class_of_that_name(serve):
    client = serve(reject=None)
    teach(client, colours={"unknown": COLOURS["rust"], "known": COLOURS["teal"]})
    add(client, None, picture(COLOURS["rust"], 77))
    (found,) = client.get("/v1/view").json()["labels"]
    assert (found["label"], found["unknown"]) == ("unknown", False)
