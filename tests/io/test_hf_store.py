"""``hf://`` addresses, read by the real client from a server on this machine that answers as the Hub does."""

import json
from urllib.parse import unquote, urlparse

import pytest

from p3dc.errors import InputError
from p3dc.images.sources import list_images
from p3dc.io.store import location
from tests.stores import answering, photo, write_parquet, write_tar

pytest.importorskip("huggingface_hub")

REPOSITORY = "datasets/owner/birds"


def answer_like_the_hub(folder):
    """Return a function that answers requests for the files of a repository."""

    def facts(path):
        name = path.relative_to(folder).as_posix()
        kind = "directory" if path.is_dir() else "file"
        return {"type": kind, "path": name, "size": path.stat().st_size, "oid": "0" * 40}

    def send(request, status, body=b"", **headers):
        request.send_response(status)
        for name, value in ({"Content-Length": len(body)} | headers).items():
            request.send_header(name.replace("_", "-"), str(value))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    def respond(request):
        path = unquote(urlparse(request.path).path)
        content = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        files, tree = f"/{REPOSITORY}/resolve/main/", f"/api/{REPOSITORY}/tree/main"
        if path == f"/api/{REPOSITORY}" or path == f"/api/{REPOSITORY}/revision/main":
            send(request, 200, json.dumps({"id": "owner/birds", "sha": "1" * 40, "siblings": []}).encode())
        elif path.startswith(tree) and (folder / path.removeprefix(tree).strip("/")).is_dir():
            inside = sorted((folder / path.removeprefix(tree).strip("/")).iterdir())
            send(request, 200, json.dumps([facts(child) for child in inside]).encode())
        elif path == f"/api/{REPOSITORY}/paths-info/main":
            asked = [folder / name for name in json.loads(content)["paths"]]
            send(request, 200, json.dumps([facts(one) for one in asked if one.exists()]).encode())
        elif path.startswith(files) and (folder / path.removeprefix(files)).is_file():
            whole = (folder / path.removeprefix(files)).read_bytes()
            facts_of_file = {"ETag": '"0"', "X_Repo_Commit": "1" * 40}
            if "Range" in request.headers:
                start, _, stop = request.headers["Range"].removeprefix("bytes=").partition("-")
                send(request, 206, whole[int(start) : int(stop) + 1], **facts_of_file)
            else:
                send(request, 200, whole, **facts_of_file)
        else:
            code = "EntryNotFound" if REPOSITORY in path else "RepoNotFound"
            send(request, 404, b"{}", X_Error_Code=code)

    return respond


@pytest.fixture
def hub(tmp_path, monkeypatch):
    import huggingface_hub
    from huggingface_hub import HfFileSystem

    from p3dc.io import store

    folder = tmp_path / "hub"
    (folder / "data").mkdir(parents=True)
    with answering(answer_like_the_hub(folder)) as address:
        monkeypatch.setattr(huggingface_hub, "HfFileSystem", lambda: HfFileSystem(endpoint=address, token=False))
        store._file_system.cache_clear()
        yield folder
    store._file_system.cache_clear()
    HfFileSystem.clear_instance_cache()


def test_shards_of_a_data_set_are_read(hub):
    images = [photo(seed) for seed in range(5)]
    write_parquet(hub / "data" / "train-0.parquet", images[:3], [1, 0, 1], ["auk", "wren"])
    write_tar(hub / "data" / "train-1.tar", {"a.png": images[3], "a.cls": b"tit", "b.png": images[4]})
    found = list(list_images(f"hf://{REPOSITORY}/data"))
    assert [(image.key, image.label) for image in found] == [
        ("train-0.parquet/0", "wren"),
        ("train-0.parquet/1", "auk"),
        ("train-0.parquet/2", "wren"),
        ("train-1.tar/a.png", "tit"),
        ("train-1.tar/b.png", None),
    ]
    assert [image.path.read_bytes() for image in found] == images
    assert location(f"hf://{REPOSITORY}/data/train-0.parquet").is_file()


def test_what_is_not_there_is_one_sentence(hub):
    for wrong in ("hf://datasets/owner/none/data", f"hf://{REPOSITORY}/none"):
        with pytest.raises(InputError, match="is not a folder") as error:
            list_images(wrong)
        assert "\n" not in str(error.value)
