"""A project in its folder: what outlasts a process, undo and redo, and files that are not what they should be."""

import json
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3dc import Priors
from p3dc.app.errors import ConflictError, NotFoundError
from p3dc.app.project.project import MOST_STEPS, Project
from p3dc.app.project.state import Photo, ProjectLimits, State, new_id
from p3dc.app.project.store import FILE, Picture, Store, StoreError
from p3dc.errors import InputError
from tests.app.conftest import Mosaic
from tests.app.project.test_state import apply, changes

ROOM = ProjectLimits()


def look(seed=0):
    return Picture(np.random.default_rng(seed).random(12, dtype=np.float32), b"jpeg %d" % seed)


def put(project, name="a.png", label=None):
    """Add a photo and return its id."""
    photo = Photo(new_id(), name, label)
    project.change(f"Add {name}", lambda state: state.add_photos([photo], ROOM), {photo.id: look(len(name))})
    return photo.id


def put_class(project, name):
    made = []

    def change(state):
        after, added = state.add_class(name, ROOM)
        made.append(added)
        return after

    project.change(f"New class {name}", change)
    return made[0].id


def seen(project):
    """Everything of a project that can be told apart."""
    pictures = {key: (each.features.tobytes(), each.thumbnail) for key, each in project.pictures.items()}
    return project.revision, project.state, project.undoable, project.redoable, pictures


def rows(folder, query):
    with sqlite3.connect(folder / FILE) as database:
        found = database.execute(query).fetchall()
    database.close()
    return found


def alter(folder, *statements):
    with sqlite3.connect(folder / FILE) as database:
        for statement in statements:
            database.execute(statement)
    database.close()


@pytest.fixture
def folder(open_project, tmp_path):
    """A folder with a class, two photos, and one step that was undone."""
    project = open_project(tmp_path / "deep" / "project")
    cat = put_class(project, "cat")
    put(project, "a.png", cat)
    put(project, "b.png")
    project.change("Point", lambda state: state.at((0.25, 0.5)))
    project.undo()
    project.store.close()
    return tmp_path / "deep" / "project"


def test_a_project_is_the_same_when_it_is_opened_again(open_project, tmp_path):
    project = open_project(tmp_path)
    cat = put_class(project, "cat <b>\u202e</b> 'é'")
    put(project, "a.png", cat)
    put(project)
    project.change("Point", lambda state: state.at((0.1, 0.7)))
    project.undo()
    before = seen(project)
    project.store.close()
    again = open_project(tmp_path)
    assert seen(again) == before
    assert again.redoable == "Point"
    again.redo()
    assert again.state.point == (0.1, 0.7)
    for _ in range(4):
        again.undo()
    assert again.state == State(reject=0.2, priors=before[1].priors)


def test_a_new_project_begins_as_it_was_told_and_an_old_one_as_it_was(open_project, tmp_path, base):
    first = open_project(tmp_path, priors="none", reject=None)
    assert (first.state.priors, first.state.reject) == ("none", None)
    first.store.close()
    again = open_project(tmp_path, priors=base, reject=0.5)
    assert (again.state.priors, again.state.reject) == ("none", None)
    assert again.priors("none") is None


def test_priors_are_kept_with_the_project(open_project, tmp_path, base):
    first = open_project(tmp_path)
    assert first.priors(first.state.priors) is base
    first.store.close()
    again = open_project(tmp_path, priors="none")
    kept = again.priors(again.state.priors)
    np.testing.assert_array_equal(kept.prototypes, base.prototypes)
    assert kept.class_names == base.class_names
    assert kept.geometry is not None
    assert again.keep_priors(None) == "none"


def test_priors_are_kept_once_and_forgotten_with_the_last_step_that_names_them(open_project, tmp_path, base):
    project = open_project(tmp_path, priors="none")
    shifted = Priors(base.prototypes + 1, base.class_names)
    for turn in range(3):
        for priors in (shifted, None):
            name = project.keep_priors(priors)
            project.change(f"turn {turn}", lambda state, name=name: replace(state, priors=name))
    assert project.store.kept_priors() == {project.keep_priors(shifted)}
    for number in range(MOST_STEPS - 1):
        project.change("", lambda state, number=number: state.at((0.0, number / MOST_STEPS)))
    assert project.store.kept_priors() == {project.keep_priors(shifted)}, "undo still reaches it"
    project.change("", lambda state: state.at(None))
    assert project.store.kept_priors() == set()


def test_priors_of_another_width_are_refused_and_nothing_is_begun(open_project, tmp_path):
    with pytest.raises(InputError, match="the priors have 5 features, but mosaic gives 12"):
        open_project(tmp_path, priors=Priors(np.eye(5)))
    assert open_project(tmp_path, priors="none").state.priors == "none"


def test_a_change_that_changes_nothing_is_no_step(open_project):
    project = open_project()
    assert project.change("Clear", lambda state: state.clear()) == 0
    assert project.undoable is None


def test_a_change_that_fails_leaves_everything(open_project):
    project = open_project()
    put(project)
    before = seen(project)
    with pytest.raises(NotFoundError):
        project.change("Delete", lambda state: state.delete_photos(["nothing"]), {"x": look()})
    assert seen(project) == before


def test_a_new_change_drops_what_could_be_redone_with_its_photos(open_project, tmp_path):
    project = open_project(tmp_path)
    kept, lost = put(project, "kept"), put(project, "lost")
    project.undo()
    assert lost in project.pictures, "redo would need it"
    new = put(project, "new")
    assert project.redoable is None
    assert set(project.pictures) == {kept, new}
    project.store.close()
    assert {identity for (identity,) in rows(tmp_path, "SELECT id FROM photo")} == {kept, new}
    with pytest.raises(ConflictError, match="nothing to redo"):
        open_project(tmp_path).redo()


def test_a_hundred_changes_can_be_undone_and_photos_of_older_ones_are_gone(open_project, tmp_path):
    project = open_project(tmp_path)
    early = put(project, "early")
    project.change("Delete", lambda state: state.delete_photos([early]))
    late = put(project, "late")
    for n in range(MOST_STEPS - 1):
        assert early in project.pictures or n > MOST_STEPS - 3
        project.change("Point", lambda state, n=n: state.at((n / 1000, 0.5)))
    assert set(project.pictures) == {late}
    project.store.close()
    assert rows(tmp_path, "SELECT id FROM photo") == [(late,)]
    assert rows(tmp_path, "SELECT count(*) FROM step") == [(MOST_STEPS + 1,)]
    again = open_project(tmp_path)
    for _ in range(MOST_STEPS):
        again.undo()
    assert again.state.photos == ()
    with pytest.raises(ConflictError, match="nothing to undo"):
        again.undo()
    for _ in range(MOST_STEPS):
        again.redo()
    assert again.state == project.state


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(changes, st.just(("undo",)), st.just(("redo",)), st.just(("reopen",))), max_size=25))
def test_undo_and_redo_return_exactly(tmp_path_factory, sequence):
    folder, backbone = tmp_path_factory.mktemp("project"), Mosaic()
    project = Project(folder, backbone, State(), "none")
    past, future = [project.state], []
    try:
        for change in sequence:
            if change == ("reopen",):
                project.store.close()
                project = Project(folder, backbone, State(), "none")
            elif change in (("undo",), ("redo",)):
                source, target = (past[1:], future) if change == ("undo",) else (future, past)
                try:
                    getattr(project, change[0])()
                except ConflictError:
                    assert not source
                else:
                    target.append((past if change == ("undo",) else future).pop())
            else:
                added = {}

                def make(state, change=change, added=added):
                    def identity():
                        name = new_id()
                        added[name] = look()
                        return name

                    return apply(state, change, identity)

                before = project.state
                try:
                    project.change("Change", lambda _, before=before: make(before), added)
                except StoreError:
                    raise
                except InputError:
                    assert project.state == before
                if project.state != before:
                    past.append(project.state)
                    future.clear()
            assert project.state == past[-1]
            assert {photo.id for photo in project.state.photos} <= set(project.pictures)
            assert (project.undoable is None, project.redoable is None) == (len(past) == 1, not future)
    finally:
        project.store.close()


def test_a_project_is_open_once(open_project, tmp_path):
    project = open_project(tmp_path)
    put(project)
    with pytest.raises(StoreError, match="is open in another process. Stop that one first.$"):
        open_project(tmp_path)
    put(project, "b")
    project.store.close()
    assert len(open_project(tmp_path).state.photos) == 2


def refused(open_project, folder, match):
    """See that a folder is refused with one sentence, and that nothing in it changes."""
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for _ in range(2):
        with pytest.raises(InputError, match=match) as caught:
            open_project(folder)
        assert str(folder) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_the_file_of_another_program_is_left_alone(open_project, tmp_path):
    alter(tmp_path, "CREATE TABLE letter (text)", "INSERT INTO letter VALUES ('dear')")
    refused(open_project, tmp_path, r"sqlite is the file of another program\. Choose another folder\.$")
    assert rows(tmp_path, "SELECT text FROM letter") == [("dear",)]


def test_a_file_of_another_version_is_left_alone(open_project, folder):
    alter(folder, "PRAGMA user_version = 7")
    refused(open_project, folder, "has version 7, but this p3dc reads versions up to 2")


def test_what_is_no_project_is_left_alone(open_project, tmp_path):
    (tmp_path / FILE).write_bytes(np.random.default_rng(0).bytes(5000))
    refused(open_project, tmp_path, "is damaged .file is not a database.")


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.8])
def test_a_file_that_ends_early_is_left_alone(open_project, folder, share):
    whole = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(whole[: int(share * len(whole))])
    refused(open_project, folder, "is damaged")


def test_a_byte_that_changed_is_told_in_a_sentence_or_does_not_matter(open_project, folder):
    whole = (folder / FILE).read_bytes()
    rng, sentences = np.random.default_rng(1), []
    for place in rng.integers(0, len(whole), 60).tolist():
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        (folder / FILE).write_bytes(changed)
        try:
            open_project(folder).store.close()
        except InputError as error:
            sentences.append(str(error))
    assert 0 < len(sentences) < 60
    assert not any("\n" in sentence for sentence in sentences)
    (folder / FILE).write_bytes(whole)
    assert len(open_project(folder).state.photos) == 2


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("DELETE FROM photo", "damaged .a photo is missing"),
        ("UPDATE photo SET features = x'0011'", "damaged"),
        ("UPDATE photo SET features = x'00112233'", "wrong number of features"),
        ("UPDATE step SET state = '{'", "damaged"),
        ("UPDATE step SET state = '[]'", "damaged"),
        ("UPDATE step SET state = '{\"classes\": []}'", "damaged"),
        ("UPDATE fact SET value = 'x' WHERE name = 'current'", "damaged"),
        ("UPDATE fact SET value = 'x' WHERE name = 'revision'", "damaged"),
        ("DROP TABLE photo", "not those of a project"),
        ("CREATE TRIGGER t AFTER INSERT ON step BEGIN DELETE FROM photo; END", "not those of a project"),
        ("CREATE VIEW v AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT 1 FROM n", "not those"),
        ("CREATE INDEX i ON photo (length(features))", "not those of a project"),
        ("UPDATE step SET state = replace(state, '\"point\": null', '\"point\": [1]')", "damaged"),
        ("UPDATE step SET state = replace(state, '\"point\": null', '\"point\": [2, 0.5]')", "damaged"),
        ('UPDATE step SET state = replace(state, \'s": [[\', \'s": [["x", "x"], ["x", "y"], [\')', "damaged"),
        ("UPDATE step SET state = printf('%.*c', 100000, '[')", "damaged"),
        (f"UPDATE step SET state = replace(state, '\"reject\": ', '\"reject\": 1{'0' * 400}')", "damaged"),
    ],
)
def test_a_file_that_lacks_something_is_refused(open_project, folder, statement, match):
    alter(folder, statement)
    refused(open_project, folder, match)


def test_a_project_of_another_backbone_is_refused(open_project, folder, backbone, base):
    other = Mosaic()
    other.digest = "f" * 64
    with pytest.raises(InputError, match="was made with another backbone .*Use that backbone, or choose another"):
        Project(folder, other, State(), base)
    assert len(open_project(folder).state.photos) == 2


@pytest.mark.parametrize("statement", ["DELETE FROM priors", "UPDATE priors SET content = substr(content, 1, 1000)"])
def test_a_project_without_its_priors_says_so(open_project, folder, statement):
    alter(folder, statement)
    project = open_project(folder)
    with pytest.raises(StoreError, match="its priors are missing"):
        project.priors(project.state.priors)


def test_a_file_in_place_of_the_folder_or_a_folder_in_place_of_the_file_is_refused(open_project, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="File exists"):
        open_project(tmp_path / "file")
    (tmp_path / "folder" / FILE).mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be read or written .unable to open database file."):
        open_project(tmp_path / "folder")


def test_a_disk_that_is_full_loses_the_change_and_nothing_else(open_project, tmp_path):
    project = open_project(tmp_path)
    put(project)
    before = seen(project)
    (pages,) = project.store._database.execute("PRAGMA page_count").fetchone()
    project.store._database.execute(f"PRAGMA max_page_count = {pages}")
    large = replace(look(), thumbnail=b"x" * 100_000)
    photo = Photo(new_id(), "large", None)
    for _ in range(2):
        with pytest.raises(StoreError, match="cannot be read or written .*full.*Look at the disk"):
            project.change("Add", lambda state: state.add_photos([photo], ROOM), {photo.id: large})
        assert seen(project) == before
    project.store._database.execute("PRAGMA max_page_count = 100000")
    project.change("Add", lambda state: state.add_photos([photo], ROOM), {photo.id: large})
    project.store.close()
    assert len(open_project(tmp_path).state.photos) == 2


def test_a_store_in_memory_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Store(None).close()
    assert list(tmp_path.iterdir()) == []


OLD = (
    "CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE photo (id TEXT PRIMARY KEY, features BLOB NOT NULL, thumbnail BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE priors (name TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE step (number INTEGER PRIMARY KEY, title TEXT NOT NULL, state TEXT NOT NULL)",
    "PRAGMA application_id = 1882416227",
    "PRAGMA user_version = 1",
)
"""What version 1 wrote."""


def test_a_project_of_version_1_is_brought_up_to_date(open_project, backbone, tmp_path):
    def state(*photos):
        return json.dumps({"classes": [["c", "cat"]], "photos": photos, "point": None, "priors": "none", "reject": 0.2})

    with sqlite3.connect(tmp_path / FILE) as database:
        for statement in OLD:
            database.execute(statement)
        for identity in ("1", "2"):
            row = identity, look(int(identity)).features.tobytes(), b"jpeg"
            database.execute("INSERT INTO photo VALUES (?, ?, ?)", row)
        for number, photos in enumerate([(), (["1", "a", "c"],), (["1", "a", "c"], ["2", "b", None])]):
            database.execute("INSERT INTO step VALUES (?, ?, ?)", (number, f"step {number}", state(*photos)))
        facts = {"current": "2", "revision": "5", "backbone": backbone.digest}
        database.executemany("INSERT INTO fact VALUES (?, ?)", facts.items())
    database.close()
    for _ in range(2):
        project = open_project(tmp_path)
        assert project.state.photos == (Photo("1", "a", "c"), Photo("2", "b", None, asked=True))
        assert (project.undoable, project.revision, project.keeps_originals) == ("step 2", 5, False)
        project.close()
    project = open_project(tmp_path)
    put(project, "new")
    project.undo()
    project.undo()
    assert [photo.id for photo in project.state.photos] == ["1"]
