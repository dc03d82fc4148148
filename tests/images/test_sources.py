"""Folders and tables of images."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3dc.errors import InputError
from p3dc.images.sources import list_csv, list_folder, readable


def make(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def found(root):
    return [(image.key, image.label) for image in list_folder(root)]


def test_the_first_folder_is_the_class(tmp_path):
    make(tmp_path, "b/2.jpg", "b/1.jpeg", "a/deep/er/x.PNG", "a/x.webp", "c/x.TIFF")
    assert found(tmp_path) == [
        ("a/deep/er/x.PNG", "a"),
        ("a/x.webp", "a"),
        ("b/1.jpeg", "b"),
        ("b/2.jpg", "b"),
        ("c/x.TIFF", "c"),
    ]
    assert [image.path for image in list_folder(tmp_path)] == [tmp_path / key for key, _ in found(tmp_path)]


def test_a_flat_folder_has_no_labels(tmp_path):
    make(tmp_path, "2.gif", "1.bmp", "empty/notes.txt")
    assert found(tmp_path) == [("1.bmp", None), ("2.gif", None)]


def test_images_next_to_class_folders_are_refused(tmp_path):
    make(tmp_path, "loose.jpg", "a/1.jpg")
    with pytest.raises(InputError, match=r"of its own, loose.jpg for example, as well as folders.* a for example"):
        list_folder(tmp_path)


def test_what_is_no_image_is_passed_over(tmp_path):
    names = (
        "a/.1.jpg",
        "a/._2.jpg",
        "a/Thumbs.db",
        "a/notes",
        "a/jpg",
        "__MACOSX/a/1.jpg",
        ".git/1.jpg",
        "a/x.jpg.txt",
    )
    make(tmp_path, "a/1.jpg", *names)
    assert found(tmp_path) == [("a/1.jpg", "a")]


def test_a_folder_without_images_says_what_it_holds(tmp_path):
    with pytest.raises(InputError, match=r"holds no images. Images end in .avif, .bmp, "):
        list_folder(tmp_path)
    make(tmp_path, "a/1.docx", "a/2.DOCX", "b/c/notes.txt", "b/README")
    with pytest.raises(InputError, match=r"holds no images, but 4 other files \(.docx, (.txt, no|no ending, .txt)"):
        list_folder(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        list_folder(tmp_path / "missing")
    with pytest.raises(InputError, match="is not a folder"):
        list_folder(tmp_path / "a" / "1.docx")


def test_links_that_lead_back_end(tmp_path):
    make(tmp_path, "a/1.jpg", "a/in/2.jpg", "b/3.jpg")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "self").symlink_to("self")
    (tmp_path / "b" / "itself.jpg").symlink_to("itself.jpg")
    (tmp_path / "b" / "gone.jpg").symlink_to("nowhere")
    keys = [key for key, _ in found(tmp_path)]
    assert keys == sorted(keys)
    assert {"a/1.jpg", "a/in/2.jpg", "a/up/b/3.jpg", "b/3.jpg", "b/gone.jpg", "b/itself.jpg"} <= set(keys)
    assert len(keys) == len(set(keys)) < 20


def test_a_link_to_another_class_counts_in_both(tmp_path):
    make(tmp_path, "a/1.jpg")
    (tmp_path / "b").symlink_to("a")
    assert found(tmp_path) == [("a/1.jpg", "a"), ("b/1.jpg", "b")]


def test_a_folder_named_like_an_image_is_a_folder(tmp_path):
    make(tmp_path, "a.jpg/1.jpg")
    assert found(tmp_path) == [("a.jpg/1.jpg", "a.jpg")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_refused(tmp_path):
    make(tmp_path, "a/1.jpg", "b/1.jpg")
    (tmp_path / "b").chmod(0)
    with pytest.raises(InputError, match=r"b cannot be listed \(Permission denied\)"):
        list(list_folder(tmp_path))


def test_names_that_are_no_text_stay_usable(tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    make(folder, os.fsdecode(b"\xff.jpg"))
    [image] = list_folder(tmp_path)
    assert (image.key, image.label) == (r"caf\xe9/\xff.jpg", r"caf\xe9")
    assert image.path.exists()
    image.key.encode()


def test_a_deep_folder_is_walked(tmp_path):
    folder = tmp_path
    for name in ("a", *("d" * 1000)):
        folder = folder / name
        folder.mkdir()
    make(folder, "1.jpg")
    assert [key.count("/") for key, _ in found(tmp_path)] == [1001]
    (folder / "1.jpg").unlink()
    while folder != tmp_path:  # what clears the temporary folder later cannot go so deep
        folder.rmdir()
        folder = folder.parent


def test_only_folders_are_asked_for_their_status(tmp_path, monkeypatch):
    make(tmp_path, *(f"a/{number}.jpg" for number in range(50)))
    asked = []
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda path, *args, **kw: asked.append(path) or real(path, *args, **kw))
    assert len(list(list_folder(tmp_path))) == 50
    assert len(asked) < 5


@settings(deadline=None)
@given(st.sets(st.lists(st.text("ab-.0", min_size=1, max_size=3), min_size=2, max_size=4).map(tuple), max_size=8))
def test_keys_are_sorted_and_complete(tmp_path_factory, names):
    root = tmp_path_factory.mktemp("tree")
    kept = set()
    for parts in names:
        folder, name = root.joinpath("c", *parts[:-1]), f"{parts[-1]}.png"
        if any(part in (".", "..") for part in parts[:-1]):
            continue
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
        if not any(part.startswith(".") for part in (*parts[:-1], name)):
            kept.add("/".join(("c", *parts[:-1], name)))
    if kept:
        assert [key for key, _ in found(root)] == sorted(kept)
    else:
        with pytest.raises(InputError, match="holds no images"):
            list_folder(root)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_names_images_in_its_order(tmp_path):
    text = f'\ufeffid,label,path\n7,wren,b.jpg\n8,,"a, 1.jpg"\n\n9\n10,tit,{tmp_path}/sub/c.jpg\n11,tit,/else/d.jpg\n'
    table = write(tmp_path / "t.csv", text.replace("\n9\n", "\n"))
    images = list_csv(table)
    assert [(image.key, image.label) for image in images] == [
        ("b.jpg", "wren"),
        ("a, 1.jpg", None),
        ("sub/c.jpg", "tit"),
        ("/else/d.jpg", "tit"),
    ]
    assert images[0].path == tmp_path / "b.jpg"


def test_labels_in_a_table_are_optional(tmp_path):
    table = write(tmp_path / "t.csv", "path\na.jpg\n")
    assert [(image.key, image.label) for image in list_csv(table)] == [("a.jpg", None)]
    table = write(tmp_path / "t.csv", "path,label\na.jpg\n")
    assert [(image.key, image.label) for image in list_csv(table)] == [("a.jpg", None)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has 0 columns 'path' in its first line: nothing"),
        ("a.jpg,wren\n", "has 0 columns 'path' in its first line: a.jpg, wren"),
        ("path,path\n", "has 2 columns 'path'"),
        ("path,label,label\n", "has 2 columns 'label'"),
        ("path,label\n", "names no images"),
        ("path,label\n,wren\n", "line 2 has no path"),
        ("path,label\na.jpg,wren\nb.jpg,wren\n./a.jpg,tit\n", "has a.jpg twice, in line 2 and line 4"),
        ('path,label\n"a.jpg,wren\n', "is damaged or cannot be read"),
        ("path,label\n" + "a" * 200_000 + ",b\n", "is damaged or cannot be read"),
    ],
)
def test_a_table_that_cannot_be_right_is_refused(tmp_path, text, sentence):
    with pytest.raises(InputError, match=sentence):
        list_csv(write(tmp_path / "t.csv", text))


def test_a_table_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"path,label\ncaf\xe9.jpg,x\n")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        list_csv(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_bytes(b"path,label\na\0.jpg,x\n")
    with pytest.raises(InputError):
        list_csv(tmp_path / "t.csv")
    with pytest.raises(InputError, match="is not a file"):
        list_csv(tmp_path)


@given(st.binary(max_size=30).filter(lambda raw: b"\0" not in raw))
def test_readable_names_can_always_be_written(raw):
    readable(os.fsdecode(raw)).encode()
