"""Every change to what a project holds."""

import json
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p3dc.app.errors import ConflictError, NotFoundError
from p3dc.app.project.state import DRAWN_BIRDS, Class, Photo, ProjectLimits, State, new_id, photo_name
from p3dc.errors import InputError

LIMITS = ProjectLimits(photos=6, classes=3, name=12, path=12)
CAT, DOG = Class("c", "cat"), Class("d", "dog")
PHOTOS = (Photo("1", "a", "c"), Photo("2", "b", "d"), Photo("3", "e", None, asked=True), Photo("4", "f", "c"))
FULL = State((CAT, DOG), PHOTOS)


def refused(call, *arguments):
    with pytest.raises(InputError) as caught:
        call(*arguments)
    return type(caught.value), str(caught.value)


def test_a_class_is_added_at_the_end_and_the_old_moment_stays_as_it_was():
    after, added = FULL.add_class("  red   fox\n", LIMITS)
    assert added.name == "red fox"
    assert after.classes == (CAT, DOG, added)
    assert FULL.classes == (CAT, DOG)
    assert after.photos == FULL.photos


@pytest.mark.parametrize("name", ["", "   ", "\x00\x1f\n", "\ud800", "\x7f\x9f"])
def test_a_name_of_nothing_is_refused(name):
    assert refused(FULL.add_class, name, LIMITS) == (InputError, "The name of the class is empty. Give one.")


def test_a_name_may_be_as_long_as_the_limit_and_no_longer():
    assert FULL.add_class("x" * 12, LIMITS)[1].name == "x" * 12
    assert refused(FULL.add_class, "x" * 13, LIMITS) == (
        InputError,
        "The name has 13 characters, and 12 are allowed. Shorten it.",
    )


def test_a_name_that_is_taken_is_refused_however_it_is_written():
    accented, _ = State().add_class("caf\u00e9", LIMITS)
    for state, name in ((FULL, " cat "), (FULL, "c\x00at".replace("\x00", "") + "\n"), (accented, "cafe\u0301")):
        status, sentence = refused(state.add_class, name, LIMITS)
        assert status == ConflictError
        assert "already" in sentence


def test_a_class_may_keep_its_name_and_its_place_when_it_is_renamed():
    assert FULL.rename_class("c", " cat ", LIMITS) == FULL
    renamed = FULL.rename_class("c", "lynx", LIMITS)
    assert [each.name for each in renamed.classes] == ["lynx", "dog"]
    assert refused(FULL.rename_class, "c", "dog", LIMITS)[0] == ConflictError
    assert refused(FULL.rename_class, "x", "lynx", LIMITS) == (
        NotFoundError,
        "There is no class 'x'. It may have been deleted.",
    )


def test_unknown_is_no_name_where_photos_can_be_unknown():
    assert State(reject=None).add_class("unknown", LIMITS)[1].name == "unknown"
    status, sentence = refused(State(reject=0.2).add_class, "unknown", LIMITS)
    assert status == InputError
    assert sentence == "'unknown' is what photos of no class are called. Choose another name."
    assert State(reject=0.2).add_class("Unknown", LIMITS)[1].name == "Unknown"


def test_there_are_as_many_classes_as_the_limit_and_no_more():
    three, _ = FULL.add_class("fox", LIMITS)
    assert refused(three.add_class, "owl", LIMITS) == (
        ConflictError,
        "There are 3 classes already, which is the most. Delete one first.",
    )


def test_a_class_goes_with_its_photos():
    after = FULL.delete_class("c")
    assert after.classes == (DOG,)
    assert [photo.id for photo in after.photos] == ["2", "3"]
    assert refused(after.delete_class, "c")[0] == NotFoundError


def test_photos_are_added_to_a_class_that_is_there_until_the_project_is_full():
    two = [Photo("5", "g", "d"), Photo("6", "h", None, asked=True)]
    after = FULL.add_photos(two, LIMITS)
    assert after.photos == (*PHOTOS, *two)
    assert refused(after.add_photos, [Photo("7", "i", None)], LIMITS) == (
        ConflictError,
        "There are 6 photos, and a project holds 6. Delete some first.",
    )
    assert refused(FULL.add_photos, [Photo("5", "g", "x")], LIMITS)[0] == NotFoundError


def test_a_photo_moves_into_a_class_and_out_of_it():
    moved = FULL.move_photos({"3": "d"})
    assert moved.photos[2] == Photo("3", "e", "d", asked=True)
    assert moved.to_label == []
    assert FULL.move_photos({"1": None}).to_label == [Photo("1", "a", None, asked=True), PHOTOS[2]]
    assert refused(FULL.move_photos, {"1": "x"})[0] == InputError
    assert refused(FULL.move_photos, {"x": "c"})[0] == NotFoundError


def test_many_photos_move_at_once_and_keep_their_places():
    moved = FULL.move_photos({"4": "d", "1": "d", "2": None})
    assert [(photo.id, photo.label, photo.asked) for photo in moved.photos] == [
        ("1", "d", False),
        ("2", None, True),
        ("3", None, True),
        ("4", "d", False),
    ]
    assert refused(FULL.move_photos, {"1": "d", "x": "d"})[0] == NotFoundError


@pytest.mark.parametrize("photo", PHOTOS)
def test_a_photo_that_moves_to_where_it_is_stays_in_its_place(photo):
    assert FULL.move_photos({photo.id: photo.label}) == FULL


def test_a_photo_is_renamed_in_its_place_and_deleted():
    renamed = FULL.rename_photo("2", "x/y/new\n", LIMITS)
    assert renamed.photos[1] == Photo("2", "x/y/new", "d")
    assert refused(FULL.rename_photo, "x", "new", LIMITS)[0] == NotFoundError
    assert [photo.id for photo in FULL.delete_photos(["2"]).photos] == ["1", "3", "4"]
    assert refused(FULL.delete_photos, ["2", "x"])[0] == NotFoundError


def test_clearing_leaves_the_examples():
    assert [photo.id for photo in FULL.clear().photos] == ["1", "2", "4"]


def test_the_priors_of_the_example_set_go_with_the_last_class_and_photo():
    drawn = replace(FULL, priors=DRAWN_BIRDS)
    assert State.from_json(json.loads(json.dumps(drawn.to_json()))) == drawn
    without_classes = drawn.delete_class("c").delete_class("d")
    assert without_classes.priors == drawn.delete_photos("124").priors == DRAWN_BIRDS
    emptied = without_classes.clear()
    assert emptied == State()
    assert emptied.add_class("fox", LIMITS)[0].priors == "backbone"
    own = replace(FULL, priors="5ca1ab1e")
    assert own.delete_class("c").delete_class("d").clear().priors == "5ca1ab1e"


def test_a_point_lies_in_the_triangle():
    assert FULL.at((0.25, 0.75)).point == (0.25, 0.75)
    assert FULL.at((0.25, 0.75)).at(None) == FULL
    for point in ((-0.1, 0.5), (0.6, 0.6), (float("nan"), 0.0), (float("inf"), 0.0)):
        assert refused(FULL.at, point)[0] == InputError


@pytest.mark.parametrize(
    ("given_name", "kept"),
    [
        ("../../etc/passwd", "etc/passwd"),
        ("birds/./a.jpg", "birds/a.jpg"),
        ("/etc/passwd", "passwd"),
        ("C:\\x\\y.jpg", "y.jpg"),
        ("/", "photo"),
        ("..", "photo"),
        ("", "photo"),
        ("a\x00b\nc.png", "a b c.png"),
        ("\ud83d\ud800.png", ".png"),
        ("a" * 20 + ".jpeg", "aaaaaaa.jpeg"),
        ("<script>alert(1)</script>", "t>alert(1)</script>"[-12:]),
    ],
)
def test_of_a_path_its_relative_part_is_kept(given_name, kept):
    assert photo_name(given_name, LIMITS) == kept


@given(st.text(alphabet=st.characters(), max_size=40))
def test_a_name_of_a_photo_can_be_written_anywhere(name):
    kept = photo_name(name, LIMITS)
    assert 1 <= len(kept) <= LIMITS.path
    assert not {"..", ".", ""} & set(kept.split("/"))
    assert "\\" not in kept
    assert not {unicodedata.category(c) for c in kept} & {"Cc", "Cs", "Zl", "Zp"}
    kept.encode()


def test_ids_differ():
    assert len({new_id() for _ in range(1000)}) == 1000


names = st.text(alphabet=st.sampled_from("ab é\n\x00\ud800/\\\u202e😀"), max_size=14)
places = st.integers(0, 7)
changes = st.one_of(
    st.tuples(st.just("add_class"), names),
    st.tuples(st.just("rename_class"), places, names),
    st.tuples(st.just("delete_class"), places),
    st.tuples(st.just("add_photo"), places, names),
    st.tuples(st.just("move_photo"), places, places),
    st.tuples(st.just("rename_photo"), places, names),
    st.tuples(st.just("delete_photo"), places),
    st.tuples(st.just("clear")),
    st.tuples(st.just("at"), st.floats(), st.floats()),
    st.tuples(st.just("at"), st.floats(0, 0.5), st.floats(0, 0.5)),
)


def apply(state, change, identity=new_id):
    """Make a change, whose numbers stand for the things in their order and past them for nothing."""
    kind, *values = change

    def nth(things, n):
        return things[n].id if n < len(things) else None

    if kind == "add_class":
        return state.add_class(values[0], LIMITS)[0]
    if kind in ("rename_class", "delete_class"):
        more = (values[1], LIMITS) if kind == "rename_class" else ()
        return getattr(state, kind)(nth(state.classes, values[0]) or "x", *more)
    if kind == "add_photo":
        return state.add_photos(
            [Photo(identity(), photo_name(values[1], LIMITS), nth(state.classes, values[0]))], LIMITS
        )
    if kind == "move_photo":
        return state.move_photos({nth(state.photos, values[0]) or "x": nth(state.classes, values[1])})
    if kind == "rename_photo":
        return state.rename_photo(nth(state.photos, values[0]) or "x", values[1], LIMITS)
    if kind == "delete_photo":
        return state.delete_photos([nth(state.photos, values[0]) or "x"])
    return state.clear() if kind == "clear" else state.at((values[0], values[1]))


@given(st.lists(changes, max_size=30), st.sampled_from([None, 0.2]))
def test_whatever_is_done_holds_together_and_can_be_written_down(sequence, reject):
    state = State(reject=reject)
    for change in sequence:
        before = json.dumps(state.to_json())
        try:
            after = apply(state, change)
        except InputError:
            after = state
        assert json.dumps(state.to_json()) == before, "a change alters nothing that was"
        state = after
        known = [each.id for each in state.classes]
        assert len(set(known)) == len(known) <= LIMITS.classes
        assert len(set(state.names.values())) == len(known)
        assert len({photo.id for photo in state.photos}) == len(state.photos) <= LIMITS.photos
        assert {photo.label for photo in state.photos} <= {None, *known}
        written = json.dumps(state.to_json(), ensure_ascii=False, allow_nan=False).encode()
        assert State.from_json(json.loads(written)) == state


def test_photos_of_a_drop_are_kept_once_and_in_the_order_of_their_keys():
    def dropped(*places, drop="d"):
        return [Photo(f"{drop}{n}-{new_id()}", str(n), None, key=f"{drop}-{n:06d}") for n in places]

    state = State().add_photos([*dropped(4, 2), Photo("x", "x", None), *dropped(2, 7, drop="e")], ProjectLimits())
    state = state.add_photos([*dropped(2, 9, 0, 3, 9), *dropped(1, drop="e")], ProjectLimits())
    assert [photo.name for photo in state.photos if photo.drop == "d"] == ["0", "2", "3", "4", "9"]
    assert [photo.name for photo in state.photos if photo.drop == "e"] == ["1", "2", "7"]
    assert all(photo.asked for photo in state.photos)


def test_a_project_of_version_1_has_neither_asked_nor_keys():
    written = FULL.to_json() | {"photos": [[each.id, each.name, each.label] for each in PHOTOS]}
    assert State.from_json(written) == FULL
