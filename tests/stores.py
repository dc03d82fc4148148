"""Servers of S3 and of Google Cloud Storage on this machine, and photos in buckets, zips, tars and Parquet."""

import io
import json
import logging
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

ACCOUNT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def make_bucket(name):
    """Make a bucket in the store that the environment names."""
    from pyarrow.fs import FileSystem

    system, _ = FileSystem.from_uri(f"s3://{name}?allow_bucket_creation=true")
    system.create_dir(name)
    return f"s3://{name}"


def upload(folder, address):
    """Copy a folder to a store, under the same names."""
    from p3dc.io.store import location

    for path in sorted(folder.rglob("*")):
        if path.is_file():
            (location(address) / path.relative_to(folder).as_posix()).write_bytes(path.read_bytes())


def photo(seed=0):
    """The bytes of a small PNG."""
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (12, 9, 3), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def write_zip(path, members, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def write_tar(path, members):
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def write_parquet(path, images, labels, class_names=None, group=2):
    """Write images as Hugging Face datasets does."""
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    features = {"image": {"_type": "Image"}}
    if class_names:
        features["label"] = {"names": class_names, "_type": "ClassLabel"}
    rows = [{"bytes": content, "path": f"{number}.png"} for number, content in enumerate(images)]
    table = pa.table({"image": pa.array(rows, struct), "label": labels})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path, row_group_size=group)
    return path


@contextmanager
def answering(respond):
    """Run an HTTP server whose requests a function answers; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            respond(self)

        do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815

        def log_message(self, *_):
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def s3_server(monkeypatch, ip="127.0.0.1"):
    """Start an S3 server, and name it in the environment."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address=ip, port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in (ACCOUNT | {"AWS_ENDPOINT_URL": f"http://{host}:{port}"}).items():
        monkeypatch.setenv(name, value)
    try:
        yield os.environ["AWS_ENDPOINT_URL"]
    finally:
        server.stop()


GOOGLE_SERVER = """
import sys
from functools import partial
from http.server import ThreadingHTTPServer
from threading import Thread

from gcp_storage_emulator.server import RequestHandler
from gcp_storage_emulator.storage import Storage

server = ThreadingHTTPServer(("127.0.0.1", 0), partial(RequestHandler, Storage(use_memory_fs=True)))
Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()  # ends with the tests, however they end
"""


def service_account():
    """A key file of Google's, with which the client signs its requests itself."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {"type": "service_account", "client_email": "tests@here", "private_key_id": "1"}
    return json.dumps(account | {"private_key": key.decode(), "token_uri": "http://127.0.0.1:9/"})


@contextmanager
def google_server(monkeypatch, folder):
    """Start a server of Google Cloud Storage, and name it and a key file in the environment."""
    (folder / "key.json").write_text(service_account())
    command = [sys.executable, "-c", GOOGLE_SERVER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:
        port = process.stdout.readline().strip()
        assert port, "gcp-storage-emulator does not start"
        address = f"http://127.0.0.1:{port}"
        monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", address)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(folder / "key.json"))
        yield address
        process.stdin.close()
