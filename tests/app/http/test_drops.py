"""Photos that are dropped together and sent in many requests, and changes of many photos at once."""

import csv
import io
import threading

import pytest

from p3dc.app.project.project import Project
from p3dc.app.project.state import State
from tests.app.conftest import COLOURS, NOWHERE, add, files, make, picture, teach, told


def send(client, places, drop="d1", to=None, names="photos/{}.png"):
    """Send some photos of a drop."""
    path = "/v1/photos" if to is None else f"/v1/classes/{to}/examples"
    images = files(*((names.format(n), picture(seed=n)) for n in places))
    return client.post(path, params={"drop": drop}, files=images, data={"keys": [f"{drop}-{n:06d}" for n in places]})


def project_of(client):
    return client.get("/v1/project").json()


def names(client):
    return [photo["name"] for photo in project_of(client)["photos"]]


def test_all_requests_of_a_drop_are_one_step_and_photos_keep_their_order(client):
    for places in ([4, 5], [0, 1], [2, 3]):
        assert send(client, places).status_code == 201
    assert names(client) == [f"photos/{n}.png" for n in range(6)]
    assert project_of(client)["undo"] == "Add 6 photos"
    client.post("/v1/undo")
    assert (names(client), project_of(client)["undo"]) == ([], None)
    client.post("/v1/redo")
    assert len(names(client)) == 6


def test_what_is_sent_again_is_answered_and_not_added_again(client):
    first = send(client, [0, 1]).json()
    second = send(client, [1, 2]).json()
    assert second["added"][0] == first["added"][1]
    assert names(client) == ["photos/0.png", "photos/1.png", "photos/2.png"]
    embedded = client.service.embedder.n_images
    third = send(client, [0, 1, 2]).json()
    assert [each["key"] for each in third["added"]] == [f"d1-{n:06d}" for n in range(3)]
    assert third["revision"] == second["revision"]
    assert client.service.embedder.n_images == embedded


def test_the_same_photos_sent_at_the_same_time_arrive_once(client):
    threads = [threading.Thread(target=send, args=(client, [0, 1, 2])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names(client) == [f"photos/{n}.png" for n in range(3)]
    assert len(client.project.pictures) == 3


def test_a_drop_stays_one_step_when_other_changes_come_between(client):
    send(client, [0])
    make(client, "cat")
    send(client, [1])
    assert project_of(client)["undo"] == "New class cat"
    client.post("/v1/undo")
    assert (len(names(client)), project_of(client)["classes"]) == (2, [])
    client.post("/v1/redo")
    assert (len(names(client)), len(project_of(client)["classes"])) == (2, 1)
    client.post("/v1/undo")
    client.post("/v1/undo")
    assert names(client) == []


def test_a_drop_that_was_undone_takes_no_more(client):
    send(client, [0])
    client.post("/v1/undo")
    assert "undone" in told(send(client, [1]), 409, "undone")
    client.post("/v1/redo")
    assert send(client, [1]).status_code == 201
    assert len(names(client)) == 2


def test_a_folder_of_class_folders_is_one_step(client):
    ids = {}
    for name in ("cat", "dog", "cat"):
        answer = client.post("/v1/classes", params={"drop": "d1"}, json={"name": name})
        assert answer.status_code == 201
        assert ids.setdefault(name, answer.json()["id"]) == answer.json()["id"]
    send(client, [0, 1], to=ids["cat"])
    send(client, [2], to=ids["dog"])
    assert [each["name"] for each in project_of(client)["classes"]] == ["cat", "dog"]
    client.post("/v1/undo")
    assert (project_of(client)["classes"], names(client), project_of(client)["undo"]) == ([], [], None)


def test_a_drop_goes_on_after_the_process_was_killed(serve, open_project, tmp_path, backbone):
    client = serve(tmp_path / "kept")
    send(client, [2, 3])
    client.service.close()  # nothing is written when it closes
    again = serve(project=Project(tmp_path / "kept", backbone, State(), "none"))
    assert send(again, [0, 1, 2, 3]).status_code == 201
    assert names(again) == [f"photos/{n}.png" for n in range(4)]
    again.post("/v1/undo")
    assert names(again) == []


@pytest.mark.parametrize(
    ("drop", "keys"),
    [("d1", []), ("d1", ["d2-000000"]), ("d1", ["d1-0"]), ("d1", ["d1-000000", "d1-000001"]), (None, ["d1-000000"])],
)
def test_keys_belong_to_a_drop_one_for_each_image(client, drop, keys):
    query = {} if drop is None else {"drop": drop}
    told(client.post("/v1/photos", params=query, files=files(picture()), data={"keys": keys}), 422, "invalid")


@pytest.mark.parametrize("drop", ["", "a b", "x" * 65, "é"])
def test_a_drop_has_a_plain_id(client, drop):
    told(client.post("/v1/photos", params={"drop": drop}, files=files(picture())), 422, "invalid")


def test_what_cannot_be_read_is_listed_also_when_the_rest_is_there(client):
    images = files(("a.png", picture()), ("b.png", b"no image"))
    for _ in range(2):
        answer = client.post("/v1/photos?drop=d", files=images, data={"keys": ["d-000000", "d-000001"]})
        assert answer.status_code == 201
        assert [each["name"] for each in answer.json()["added"]] == ["a.png"]
        assert [each["name"] for each in answer.json()["failures"]] == ["b.png"]


def test_many_photos_move_in_one_step(taught):
    rust = taught.classes["rust"]
    moves = [{"id": identity, "class": rust} for identity in taught.asked[:3]]
    assert taught.patch("/v1/photos", json={"moves": moves}).json()["id"] is None
    photos = {photo["id"]: photo for photo in project_of(taught)["photos"]}
    assert all((photos[each]["class"], photos[each]["by"]) == (rust, "user") for each in taught.asked[:3])
    assert all(photos[each]["asked"] for each in taught.asked)
    assert project_of(taught)["undo"] == "Move 3 photos"
    taught.post("/v1/undo")
    assert {photo["by"] for photo in project_of(taught)["photos"] if photo["asked"]} == {None}


def test_photos_move_to_a_class_that_is_new(taught):
    moves = [{"id": taught.asked[0], "class": None}, {"id": taught.asked[1], "class": taught.classes["teal"]}]
    made = taught.patch("/v1/photos", json={"moves": moves, "new_class": "owl"}).json()["id"]
    photos = {photo["id"]: photo["class"] for photo in project_of(taught)["photos"]}
    assert (photos[taught.asked[0]], photos[taught.asked[1]]) == (made, taught.classes["teal"])
    taught.post("/v1/undo")
    assert "owl" not in [each["name"] for each in project_of(taught)["classes"]]


def test_of_moves_that_cannot_all_be_made_none_is(taught):
    before = project_of(taught)
    moves = [{"id": taught.asked[0], "class": taught.classes["rust"]}, {"id": NOWHERE, "class": None}]
    told(taught.patch("/v1/photos", json={"moves": moves}), 404, "not_found")
    told(taught.patch("/v1/photos", json={"moves": moves[:1], "new_class": "rust"}), 409, "conflict")
    assert project_of(taught) == before


def test_many_photos_are_deleted_in_one_step(taught):
    assert taught.post("/v1/deletions", json={"ids": taught.asked[:3]}).status_code == 200
    assert [photo["id"] for photo in project_of(taught)["photos"] if photo["asked"]] == taught.asked[3:]
    taught.post("/v1/undo")
    assert len([photo for photo in project_of(taught)["photos"] if photo["asked"]]) == 4
    told(taught.post("/v1/deletions", json={"ids": [taught.asked[0], NOWHERE]}), 404, "not_found")


def test_the_table_lists_every_photo_that_was_asked_and_who_labelled_it(client):
    classes = teach(client)
    asked = add(client, None, *((f"{n}.png", picture(COLOURS["olive"], 800 + n)) for n in range(4)))
    moves = [{"id": asked[2], "class": classes["teal"]}]
    client.patch("/v1/photos", json={"moves": moves})
    header, *rows = csv.reader(io.StringIO(client.get("/v1/labels").text))
    found = [dict(zip(header, row, strict=True)) for row in rows]
    assert [row["path"] for row in found] == ["0.png", "1.png", "2.png", "3.png"]
    assert [row["by"] for row in found] == ["classifier", "classifier", "user", "classifier"]
    assert (found[2]["label"], found[2]["probability"]) == ("teal", "")
