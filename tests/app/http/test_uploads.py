"""What comes in from outside: limits, bombs, files that are two things at once, and names that are paths."""

import gc
import io
import re
import struct
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from p3dc.app.http.limits import RequestLimits
from p3dc.app.project.project import Project
from p3dc.app.project.state import State
from p3dc.images.backbones.loading import load_backbone
from tests.app.conftest import COLOURS, add, files, make, picture, teach, told

LEFT_OPEN = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <function SpooledTemporaryFile:pytest.PytestUnraisableExceptionWarning"
)
"""Starlette leaves the file of a part that does not end to the garbage collector."""
SCRIPT = b"<html><script>alert(document.domain)</script></html>"


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width, height, rows=b""):
    """A PNG that says how large it is, with whatever pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def gif(width, height):
    return (
        b"GIF89a"
        + struct.pack("<HH", width, height)
        + b"\x80\x00\x00"
        + bytes(6)
        + b","
        + bytes(4)
        + struct.pack("<HH", width, height)
        + b"\x00\x02\x01\x00\x00;"
    )


def jpeg_header(width, height):
    whole = bytearray(picture(kind="JPEG"))
    place = whole.index(b"\xff\xc0")
    whole[place + 5 : place + 9] = struct.pack(">HH", height, width)
    return bytes(whole)


def bmp_header(width, height):
    whole = bytearray(picture(kind="BMP"))
    whole[18:26] = struct.pack("<ii", width, height)
    return bytes(whole)


def test_a_bomb_of_a_few_kilobytes_is_refused_before_it_is_unpacked(client):
    flat = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(flat, "PNG", optimize=False)
    bomb = flat.getvalue()
    assert len(bomb) < 100_000
    answer = client.post("/v1/photos", files=files(("bomb.png", bomb)))
    assert "far too many pixels" in told(answer, 413, "too_many_pixels")


@pytest.mark.parametrize(
    "bomb",
    [
        png(100_000, 100_000),
        png(2**31 - 1, 2**31 - 1),
        gif(65_535, 65_535),
        jpeg_header(65_500, 65_500),
        bmp_header(100_000, 100_000),
        bmp_header(2**31 - 1, -(2**31) + 1),
    ],
)
def test_a_header_that_promises_too_much_is_refused(client, bomb):
    answer = client.post("/v1/photos", files=files(bomb))
    assert answer.status_code in (413, 415, 422), answer.text
    told(answer, answer.status_code, answer.json()["error"]["code"])


def test_so_many_pixels_are_taken_and_no_more(serve):
    client = serve(limits=RequestLimits(pixels=1000))
    assert client.post("/v1/photos", files=files(picture(size=(40, 25)))).status_code == 201
    answer = client.post("/v1/photos", files=files(("a.png", picture(size=(40, 26)))))
    sentence = told(answer, 413, "too_many_pixels")
    assert sentence == "a.png: It has 40×26 pixels; more than 1,000 are refused. Scale it down first."


@pytest.mark.parametrize("size", [(1, 1), (1, 50_000), (50_000, 1), (3, 9000)])
def test_an_image_of_any_shape_is_taken(client, size):
    (photo,) = add(client, None, picture(size=size))
    small = Image.open(io.BytesIO(client.get(f"/v1/photos/{photo}/thumbnail").content))
    assert max(small.size) <= 160


def archive():
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as zipped:
        zipped.writestr("evil.html", SCRIPT)
    return written.getvalue()


POLYGLOTS = {
    "jpeg and page": picture(kind="JPEG") + SCRIPT,
    "jpeg and zip": picture(kind="JPEG") + archive(),
    "jpeg with comment": picture(kind="JPEG", comment=SCRIPT),
    "gif with comment": picture(kind="GIF", comment=SCRIPT),
    "png with text": picture()[:33] + chunk(b"tEXt", b"Comment\0" + SCRIPT) + picture()[33:],
    "png and zip": picture() + archive(),
    "jpeg with exif": picture(kind="JPEG", exif=b"Exif\x00\x00" + SCRIPT),
    "jpeg with profile": picture(kind="JPEG", icc_profile=SCRIPT),
}


@pytest.mark.parametrize("content", POLYGLOTS.values(), ids=POLYGLOTS.keys())
def test_of_a_file_that_is_two_things_the_picture_is_all_that_is_kept(serve, tmp_path, content):
    client = serve(tmp_path)
    made = make(client, "one")
    (photo,) = add(client, made, ("picture.html", content))
    add(client, make(client, "two"), picture(COLOURS["teal"]))
    small = client.get(f"/v1/photos/{photo}/thumbnail")
    assert small.headers["content-type"] == "image/jpeg"
    Image.open(io.BytesIO(small.content)).load()
    for kept in (small.content, client.get("/v1/model").content, (tmp_path / "project.sqlite").read_bytes()):
        assert b"alert(" not in kept
        assert b"evil" not in kept


@pytest.mark.parametrize(
    "content",
    [
        SCRIPT,
        b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
        archive(),
        b"%PDF-1.7",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        b"\x00\x00\x00\x1cftypheic",
        b"\x7fELF",
        b"GIF89a" + b"/*" + SCRIPT,
    ],
)
def test_what_is_no_image_is_not_taken_whatever_it_is_called(client, content):
    told(client.post("/v1/photos", files=files(("photo.jpg", content))), 415, "not_an_image")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("../../etc/passwd", "etc/passwd"),
        ("..\\..\\windows\\win.ini", "windows/win.ini"),
        ("C:\\x\\y.jpg", "y.jpg"),
        ("/dev/null", "null"),
        ("..", "photo"),
        ("a%22b.jpg", 'a"b.jpg'),
        ("", None),
        ("a\nb\r\x00c.png", None),
        ("\u202egnp.exe", "\u202egnp.exe"),
        ("naïve 猫 😀.jpg", "naïve 猫 😀.jpg"),
        ("x" * 400 + ".jpg", "x" * 296 + ".jpg"),
    ],
)
def test_a_path_in_a_name_leads_nowhere(serve, tmp_path, given, kept):
    client = serve(tmp_path / "project")
    answer = raw(client, part(given, picture()))
    if kept is not None:
        assert answer.status_code == 201, answer.text
        (found,) = answer.json()["added"]
        assert found["name"] == kept
    assert answer.status_code in (201, 422)
    assert [path.name for path in tmp_path.iterdir()] == ["project"]
    assert {path.name.split("-")[0] for path in (tmp_path / "project").iterdir()} == {"project.sqlite"}


BOUNDARY = "frontier"


def part(filename, content, name="images"):
    """Write a part of a form, as it is."""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="{filename}"\r\n\r\n'
    return head.encode() + content + b"\r\n"


def raw(client, *parts, path="/v1/photos", kind=f"multipart/form-data; boundary={BOUNDARY}", end=True):
    body = b"".join(parts) + (f"--{BOUNDARY}--\r\n".encode() if end else b"")
    return client.post(path, content=body, headers={"Content-Type": kind})


def test_forms_are_taken_as_browsers_and_others_write_them(client):
    assert raw(client, part("a.png", picture())).status_code == 201
    assert raw(client, part("a.png", picture()), kind=f'Multipart/Form-Data; boundary="{BOUNDARY}"').status_code == 201
    text = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="note"\r\n\r\nhello\r\n'.encode()
    assert raw(client, text, part("a.png", picture())).status_code == 201


def test_a_form_without_images_is_refused(client):
    for parts in ([], [part("a.png", picture(), name="other")]):
        assert "no images" in told(raw(client, *parts), 422, "invalid")
    text = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="images"\r\n\r\nhello\r\n'.encode()
    assert "no images" in told(raw(client, text), 422, "invalid")
    assert "empty" in told(raw(client, part("a.png", b"")), 422, "invalid")


@pytest.mark.parametrize("kind", ["image/png", "application/json", "application/octet-stream", "text/plain", ""])
def test_images_come_in_a_form(client, kind):
    for path in ("/v1/photos", "/v1/classify", "/v1/explain"):
        told(client.post(path, content=picture()[:100], headers={"Content-Type": kind}), 415, "not_multipart")


@pytest.mark.parametrize(
    "kind",
    [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=other",
        f"multipart/form-data; boundary={BOUNDARY}; charset=undefined",
        f"multipart/form-data; boundary={BOUNDARY}; charset=nonsense",
        f"multipart/form-data; boundary={BOUNDARY}; charset=idna",
        f"multipart/form-data; boundary={BOUNDARY}; charset=hex",
        f"multipart/form-data; boundary={'b' * 5000}",
    ],
)
@LEFT_OPEN
def test_a_form_that_cannot_be_read_is_refused_or_read(client, kind):
    answer = raw(client, part("a..b.png", picture()), kind=kind)
    gc.collect()
    assert answer.status_code in (201, 422), answer.text
    if answer.status_code == 422:
        told(answer, 422, "invalid")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--",
        f"--{BOUNDARY}".encode(),
        f"--{BOUNDARY}\r\n\r\nhello\r\n--{BOUNDARY}--".encode(),
        f"--{BOUNDARY}\r\nContent-Disposition: form-data\r\n\r\nx\r\n--{BOUNDARY}--".encode(),
        f"--{BOUNDARY}\r\nContent-Disposition: form-data; filename=a\r\n\r\nx\r\n--{BOUNDARY}--".encode(),
        part("a.png", picture())[:-20],
        bytes(range(256)) * 10,
    ],
)
@LEFT_OPEN
def test_a_form_that_is_cut_off_or_nonsense_is_refused(client, body):
    answer = client.post(
        "/v1/photos", content=body, headers={"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    )
    gc.collect()
    assert answer.status_code in (415, 422), answer.text
    told(answer, answer.status_code, answer.json()["error"]["code"])


def test_so_many_files_are_taken_and_no_more(serve):
    client = serve(limits=RequestLimits(files=3))
    assert client.post("/v1/photos", files=files(*(picture(seed=n) for n in range(3)))).status_code == 201
    answer = client.post("/v1/photos", files=files(*(picture(seed=n) for n in range(4))))
    assert told(answer, 413, "too_many_files") == "There are more than 3 images in the request. Send fewer at once."
    assert len(client.project.state.photos) == 3


def test_fields_that_are_no_files_are_not_called_files(client):
    text = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="note"\r\n\r\nhello\r\n'.encode()
    answer = raw(client, text, text, text, part("a.png", picture()))
    assert not re.search("more than 50 images", answer.text)


def test_a_photo_of_a_real_camera_is_turned_upright(client):
    exif = Image.Exif()
    exif[0x0112] = 6
    (photo,) = add(client, None, picture(kind="JPEG", size=(64, 32), exif=exif.tobytes()))
    small = Image.open(io.BytesIO(client.get(f"/v1/photos/{photo}/thumbnail").content))
    assert small.size[0] < small.size[1]
    assert not small.getexif()


def test_the_real_network_tells_colours_apart(serve):
    client = serve(project=Project(None, load_backbone(), State(reject=0.2)))
    teach(client, 2)
    asked = add(client, None, *(picture(colour, 500) for colour in COLOURS.values()))
    found = client.get("/v1/view").json()
    assert [each["id"] for each in found["labels"]] == asked
    likely = [each["runner_up"] if each["unknown"] else each["label"] for each in found["labels"]]
    assert likely == list(COLOURS)
    held = client.get("/v1/leave-one-out").json()
    assert held["of"] == 6
    explained = client.get(f"/v1/photos/{client.project.state.photos[0].id}/explanation?alpha=0&beta=0.5").json()
    assert len(explained["base_classes"]) == 5
    assert np.isfinite(explained["unknown_below"])
    client.project.store.close()
