"""Projects by name, photos kept as they were sent, and the zip of them."""

import io
import zipfile
from pathlib import Path

import pytest

from p3dc.app.archive import archive_names, safe_name
from p3dc.app.project.library import Library, check_name, data_folder
from p3dc.app.project.project import Project
from p3dc.app.project.state import State
from p3dc.errors import InputError
from tests.app.conftest import COLOURS, add, make, picture, teach, told


@pytest.fixture
def client(serve, backbone, base, tmp_path):
    """A client of one project among others."""

    def open_folder(path):
        return Project(path, backbone, State(reject=0.2), base)

    return serve(project=open_folder(tmp_path / "birds"), library=Library(tmp_path, open_folder))


def test_projects_are_made_listed_and_opened_again(client):
    make(client, "robin")
    assert client.post("/v1/projects", json={"name": "cats and dogs"}).json() == {
        "revision": 0,
        "open": "cats and dogs",
    }
    assert client.get("/v1/project").json()["classes"] == []
    listed = client.get("/v1/projects").json()
    assert [(each["name"], each["classes"], each["photos"]) for each in listed["projects"]] == [
        ("cats and dogs", 0, 0),
        ("birds", 1, 0),
    ]
    assert client.post("/v1/projects", json={"name": "birds"}).json()["revision"] == 1
    assert client.get("/v1/project").json()["name"] == "birds"


def test_a_project_that_was_closed_takes_no_change(client):
    closed = client.service.project
    client.post("/v1/projects", json={"name": "other"})
    with pytest.raises(InputError, match="Another project was opened"):
        closed.change("New class", lambda state: state.add_class("x", closed.limits)[0])


def test_a_server_of_one_project_opens_no_other(serve, tmp_path):
    alone = serve(tmp_path / "one")
    assert alone.get("/v1/projects").json()["folder"] is None
    assert "without --project" in told(alone.post("/v1/projects", json={"name": "two"}), 409, "conflict")


@pytest.mark.parametrize("name", ["", " ", ".", "..", ".hidden", "a/b", "a\\b", "x" * 61, "a\x00b", "c:", "end."])
def test_a_name_that_is_no_folder_is_refused(client, tmp_path, name):
    told(client.post("/v1/projects", json={"name": name}), 422, "invalid")
    assert [path.name for path in tmp_path.iterdir()] == ["birds"]
    with pytest.raises(InputError):
        check_name(name)


def test_the_users_data_are_where_the_system_keeps_them(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert data_folder({}, "linux") == Path("/home/me/.local/share/p3dc/projects")
    assert data_folder({"XDG_DATA_HOME": "/data"}, "linux") == Path("/data/p3dc/projects")
    assert data_folder({"XDG_DATA_HOME": "relative"}, "linux") == Path("/home/me/.local/share/p3dc/projects")
    assert data_folder({}, "darwin") == Path("/home/me/Library/Application Support/p3dc/projects")
    assert data_folder({"LOCALAPPDATA": "/c"}, "win32") == Path("/c/p3dc/projects")


def originals(client):
    return client.get("/v1/project").json()["originals"]


def test_photos_are_kept_as_sent_only_after_the_user_agreed(client, tmp_path):
    (early,) = add(client, None, picture())
    assert originals(client) == {"keep": False, "photos": 0}
    assert "agree" in told(client.get("/v1/archive"), 409, "conflict").lower()
    client.put("/v1/originals", json={"keep": True})
    (late,) = add(client, None, ("a.png", picture(seed=1)))
    assert originals(client) == {"keep": True, "photos": 1}
    found = client.get(f"/v1/photos/{late}/original")
    assert (found.content, found.headers["content-type"]) == (picture(seed=1), "image/png")
    told(client.get(f"/v1/photos/{early}/original"), 404, "not_found")
    client.put("/v1/originals", json={"keep": False})
    assert originals(client) == {"keep": False, "photos": 0}
    assert list((tmp_path / "birds" / "originals").iterdir()) == []


def test_what_is_kept_outlasts_the_process_and_what_never_arrived_does_not(client, backbone, tmp_path):
    client.put("/v1/originals", json={"keep": True})
    (photo,) = add(client, None, picture())
    (tmp_path / "birds" / "originals" / "stray").write_bytes(b"x")
    client.service.project.close()
    again = Project(tmp_path / "birds", backbone, State(), "none")
    assert (again.keeps_originals, again.originals.ids) == (True, {photo})
    assert [path.name for path in (tmp_path / "birds" / "originals").iterdir()] == [photo]
    again.close()


def test_the_zip_has_the_photos_in_folders_by_their_labels(client):
    client.put("/v1/originals", json={"keep": True})
    classes = teach(client, 2)
    sent = {f"{n}/a.png": picture(colour, 900 + n) for n, colour in enumerate([*COLOURS.values(), (170, 130, 250)])}
    asked = add(client, None, *sent.items())
    client.patch("/v1/photos", json={"moves": [{"id": asked[0], "class": classes["teal"]}]})
    shown = {each["id"]: each["label"] for each in client.get("/v1/view").json()["labels"]}
    with zipfile.ZipFile(io.BytesIO(client.get("/v1/archive").content)) as archive:
        assert archive.testzip() is None
        found = {archive.read(name): name for name in archive.namelist()}
        assert len(archive.namelist()) == 10
    folders = {identity: found[content].split("/")[0] for identity, content in zip(asked, sent.values(), strict=True)}
    assert folders == {asked[0]: "teal", **shown}


def test_names_in_the_zip_are_safe_and_differ():
    given = ["a.jpg", "A.JPG", "b/a.jpg", "../../etc/passwd", "con.png", "a\x00:b?.png", "...", "x" * 300 + ".jpeg", ""]
    names = archive_names([("Owl", name) for name in given] + [("owl", "a.jpg"), ("../up", "a.jpg"), ("..", "b")])
    assert len({name.casefold() for name in names}) == len(names)
    for name in names:
        folder, file = name.split("/")
        for part in (folder, file):
            assert part not in ("", ".", "..")
            assert not set(part) & set('<>:"\\|?*\x00')
            assert len(part) <= 130
            assert part == safe_name(part) or "(" in part
    assert names[:3] == ["Owl/a.jpg", "Owl/A (2).JPG", "Owl/a (3).jpg"]
