"""The command serve: what it refuses to begin, and a server of its own that is stopped, killed and kept waiting."""

import asyncio
import builtins
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from p3dc import ImageClassifier, Priors
from p3dc.app.project.project import Project
from p3dc.app.project.state import ProjectLimits, State
from p3dc.app.project.store import FILE
from p3dc.cli.serving import _listen
from p3dc.images.backbones.loading import load_backbone
from tests.app.conftest import TOKEN, add, files, make, picture, teach, told
from tests.app.http.test_uploads import BOUNDARY, part
from tests.cli.test_photos import is_one_sentence
from tests.conftest import make_features
from tests.images.conftest import paint_classes


@pytest.fixture
def fitted(network, tmp_path):
    path = tmp_path / "model.safetensors"
    ImageClassifier.from_folder(paint_classes(tmp_path / "photos"), backbone=network).save(path)
    return path


@pytest.fixture
def refused(p3dc, network, monkeypatch):
    """Run serve and return the sentence with which it refuses."""
    monkeypatch.delenv("P3DC_TOKEN", raising=False)

    def call(*arguments):
        status, output, errors = p3dc("serve", "--port", "0", "--backbone", network, *arguments)
        assert (status, output) == (2, "")
        assert is_one_sentence(errors), errors
        return errors.removeprefix("p3dc: ").strip()

    return call


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org"])
def test_an_address_that_others_can_reach_needs_a_token(refused, host):
    assert refused("--host", host) == (
        f"{host} can be reached by others, so it needs a token. Set P3DC_TOKEN to 16 characters or more."
    )


@pytest.mark.parametrize("token", ["short", "", "fifteen letters", "ü" * 20, "a line that\nends too soon"])
def test_a_token_is_long_and_plain(refused, token, monkeypatch):
    monkeypatch.setenv("P3DC_TOKEN", token)
    sentence = refused("--host", "0.0.0.0")
    assert "token" in sentence
    assert not token or token not in sentence


def test_a_port_that_is_taken_is_refused(refused):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert refused("--port", port) == (
            f"127.0.0.1 port {port} cannot be listened on (Address already in use). Choose another port or host."
        )


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_answers_are_sent_at_once(host):
    """Otherwise each small answer waits 40 ms for the client to acknowledge its headers."""

    async def is_sent_at_once():
        accepted = asyncio.get_running_loop().create_future()

        class Accepting(asyncio.Protocol):
            def connection_made(self, transport):
                line = transport.get_extra_info("socket")
                accepted.set_result(line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        with _listen(host, 0, None) as listening:
            server = await asyncio.get_running_loop().create_server(Accepting, sock=listening)
            with socket.create_connection(listening.getsockname()[:2]):
                found = await accepted
            server.close()
        return found

    assert asyncio.run(is_sent_at_once())


def test_a_host_that_cannot_be_is_refused(refused):
    assert "cannot be listened on" in refused("--host", "x" * 70, "--token", TOKEN)
    assert "cannot be listened on" in refused("--host", "no such host", "--token", TOKEN)


def test_without_the_extra_it_says_what_to_install(refused, monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name.startswith("p3dc.app"):
            raise ModuleNotFoundError("No module named 'fastapi'", name="fastapi")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    assert refused() == 'serve needs fastapi. Install it: pip install "p3dc-shot[serve]"'


def test_a_model_does_not_go_over_a_project(refused, network, fitted, tmp_path):
    folder = tmp_path / "project"
    project = Project(folder, load_backbone(network), State(), "none")
    project.change("New class", lambda state: state.add_class("cat", ProjectLimits())[0])
    project.store.close()
    assert refused(fitted, "--project", folder) == (
        f"{folder} holds a project already. Leave {fitted} out, or choose another folder."
    )


def test_what_cannot_be_read_is_refused(refused, fitted, tmp_path):
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(fitted.read_bytes()[:1000])
    assert "cut.safetensors" in refused(cut)
    assert "nowhere.safetensors" in refused(tmp_path / "nowhere.safetensors")
    assert "cut.safetensors" in refused("--priors", cut)
    assert "features" in refused("--priors", save(Priors.from_features(make_features(1, 5, 9)), tmp_path))
    assert "nothing.onnx" in refused("--backbone", tmp_path / "nothing.onnx")
    assert "reject" in refused("--reject", "2")
    (tmp_path / "file").write_text("x")
    assert "file" in refused("--project", tmp_path / "file")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / FILE).write_bytes(b"x" * 5000)
    assert "is damaged" in refused("--project", tmp_path / "other")


def save(priors, tmp_path):
    priors.save(tmp_path / "priors.safetensors")
    return tmp_path / "priors.safetensors"


@contextmanager
def serving(*arguments, **environment):
    """Start the command and yield a client of it, whose process is client.process."""
    command = [sys.executable, "-m", "p3dc", "serve", "--port", "0", *map(str, arguments)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment
    )
    try:
        line = process.stdout.readline()
        found = re.search(r"http://(\S+):(\d+)/", line)
        assert found, line + process.stderr.read()
        address = "127.0.0.1" if found[1] in ("localhost", socket.gethostname()) else found[1]
        with httpx.Client(base_url=f"http://{address}:{found[2]}", timeout=60) as client:
            client.process, client.line, client.place = process, line, (address, int(found[2]))
            yield client
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def stop(client, how=signal.SIGTERM):
    """Stop a server and return its status and what it said."""
    client.process.send_signal(how)
    _, errors = client.process.communicate(timeout=60)
    return client.process.returncode, errors


def test_a_project_is_served_stopped_and_served_again(network, fitted, tmp_path):
    folder = tmp_path / "project"
    with serving(fitted, "--backbone", network, "--project", folder) as client:
        assert client.line == (f"Serving http://localhost:{client.place[1]}/ (project in {folder}; Ctrl-C stops)\n")
        assert client.get("/v1/health").json()["examples"] == 12
        assert "server" not in client.get("/").headers
        add(client, None, picture(), picture(seed=1))
        before = client.get("/v1/project").json(), client.get("/v1/view").json()
        with subprocess.Popen(
            [sys.executable, "-m", "p3dc", "serve", "--port", "0", "--backbone", network, "--project", folder],
            stderr=subprocess.PIPE,
            text=True,
        ) as second:
            assert "is open in another process. Stop that one first." in second.communicate(timeout=60)[1]
            assert second.returncode == 2
        assert stop(client, signal.SIGINT) == (128 + signal.SIGINT, "")
    assert not list(folder.glob("*-journal")), "what is stopped leaves nothing open"
    with serving("--backbone", network, "--project", folder) as client:
        assert (client.get("/v1/project").json(), client.get("/v1/view").json()) == before
        assert stop(client) == (128 + signal.SIGTERM, "")


def test_a_project_that_is_there_takes_on_what_options_say_and_keeps_the_rest(network, tmp_path, refused):
    folder, own = tmp_path / "project", Priors.from_features(make_features(1, 6, 30, n_features=108))
    with serving("--backbone", network, "--project", folder, "--priors", save(own, tmp_path)) as client:
        began = client.get("/v1/project").json()
        assert (began["n_base_classes"], began["reject"], began["undo"]) == (6, 0.2, None)
        stop(client)
    with serving("--backbone", network, "--project", folder) as client:
        assert client.get("/v1/project").json() == began
        stop(client)
    with serving("--backbone", network, "--project", folder, "--priors", "none", "--reject", "0.1") as client:
        now = client.get("/v1/project").json()
        assert (now["n_base_classes"], now["reject"], now["undo"]) == (0, 0.1, "Share of unknown")
        make(client, "robin")
        stop(client)
    unfit = save(Priors.from_features(make_features(1, 5, 9)), tmp_path)
    assert "the priors have 24 features" in refused("--project", folder, "--priors", unfit)
    with serving("--backbone", network, "--project", folder, "--reject", "0") as client:
        assert client.get("/v1/project").json()["reject"] is None
        make(client, "unknown")
        stop(client)
    assert "A class is called 'unknown'" in refused("--project", folder, "--reject", "0.3")


def test_an_interrupt_ends_a_server_that_was_started_with_interrupts_ignored(network):
    """As a shell without job control starts what runs in the background."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with serving("--backbone", network, "--priors", "none") as client:
            assert client.get("/v1/health").status_code == 200
            assert stop(client, signal.SIGINT) == (128 + signal.SIGINT, "")
    finally:
        signal.signal(signal.SIGINT, handler)


def test_a_server_for_others_asks_for_its_token(network):
    with serving("--backbone", network, "--host", "0.0.0.0", P3DC_TOKEN=TOKEN) as client:
        told(client.get("/v1/project"), 401, "token_needed")
        assert client.get("/").status_code == 200
        assert client.get("/v1/project", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert client.post("/v1/session", json={"token": TOKEN}).status_code == 204
        assert client.get("/v1/project").status_code == 200
        _, errors = stop(client)
        assert TOKEN not in errors + client.line


def test_a_server_that_is_killed_while_photos_come_keeps_every_answered_one(network, tmp_path):
    folder, answered = tmp_path / "project", []
    for round_number in range(3):
        with serving("--backbone", network, "--project", folder, "--priors", "none") as client:
            held = [photo["id"] for photo in client.get("/v1/project").json()["photos"]]
            assert set(answered) <= set(held)
            enough = threading.Event()

            def send(worker, client=client, enough=enough, first=1000 * round_number):
                for n in range(1000):
                    try:
                        image = picture(seed=first + 100 * worker + n)
                        answer = client.post("/v1/photos", files=files(image))
                    except httpx.HTTPError:
                        return
                    answered.extend(each["id"] for each in answer.json()["added"])
                    if n > 2:
                        enough.set()

            workers = [threading.Thread(target=send, args=(n,)) for n in range(3)]
            for worker in workers:
                worker.start()
            assert enough.wait(60)
            client.process.kill()
            for worker in workers:
                worker.join(60)
    project = Project(folder, load_backbone(network), State(), "none")
    assert set(answered) <= {photo.id for photo in project.state.photos}
    assert len(answered) >= 9
    project.store.close()


def talk(place, *pieces):
    """Send bytes as they are, and return what comes back until the server ends."""
    with socket.create_connection(place, timeout=60) as line:
        for piece in pieces:
            line.sendall(piece)
        found = b""
        while more := line.recv(65536):
            found += more
        return found


def test_lines_of_all_kinds_do_not_stop_the_server(network):
    with serving("--backbone", network, "--priors", "none") as client:
        place = client.place
        host = f"Host: localhost:{place[1]}\r\n"
        head = f"POST /v1/photos HTTP/1.1\r\n{host}Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n"
        ending = "Connection: close\r\n\r\n"
        assert talk(place, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")
        assert talk(place, f"GET / HTTP/1.1\r\n{ending}".encode()).startswith(b"HTTP/1.1 4")
        assert b"421" in talk(place, f"GET / HTTP/1.1\r\nHost: evil.example\r\n{ending}".encode())
        assert talk(place, f"GET /{'x' * 50_000} HTTP/1.1\r\n{host}{ending}".encode()).startswith(b"HTTP/1.1 404")
        body = part("a.png", picture()) + f"--{BOUNDARY}--\r\n".encode()
        chunks = [b"%x\r\n%s\r\n" % (len(body[at : at + 50]), body[at : at + 50]) for at in range(0, len(body), 50)]
        chunked = f"{head}Transfer-Encoding: chunked\r\n{ending}".encode()
        assert talk(place, chunked, *chunks, b"0\r\n\r\n").startswith(b"HTTP/1.1 201")
        for _ in range(5):
            with socket.create_connection(place) as leaving:
                leaving.sendall(f"{head}Content-Length: 5000\r\n\r\n".encode() + body[:100])
        large = f"{head}Content-Length: {150 * 2**20}\r\n{ending}".encode()
        assert talk(place, large, *[bytes(2**20)] * 150).startswith(b"HTTP/1.1 413"), "who sends all gets to read it"
        with socket.create_connection(place, timeout=60) as line, line.makefile("rb") as answers:
            for _ in range(3):
                line.sendall(f"GET /v1/health HTTP/1.1\r\n{host}\r\n".encode())
                assert answers.readline() == b"HTTP/1.1 200 OK\r\n", "one line serves several requests"
                length = 0
                while (header := answers.readline().lower()) != b"\r\n":
                    length = int(header.split(b":")[1]) if header.startswith(b"content-length") else length
                assert json.loads(answers.read(length))["status"] == "ok"
        assert 'status="500"' not in client.get("/v1/metrics").text
        assert len(client.get("/v1/project").json()["photos"]) == 1
        _, errors = stop(client)
        assert "Traceback" not in errors


def test_many_clients_at_once_are_all_answered(network):
    with serving("--backbone", network, "--priors", "none") as client:
        teach(client, 2)
        image = picture()
        found = []

        def ask():
            with httpx.Client(base_url=client.base_url, timeout=60) as own:
                for _ in range(4):
                    answer = own.post("/v1/classify", files=files(image))
                    found.append((answer.status_code, answer.text if answer.status_code == 200 else ""))

        threads = [threading.Thread(target=ask) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(found) == 64
        assert {status for status, _ in found} == {200}
        labels = {json.loads(text)["predictions"][0]["label"] for _, text in found}
        assert len(labels) == 1
        counts = dict(line.rsplit(" ", 1) for line in client.get("/v1/metrics").text.splitlines() if line[0] != "#")
        assert float(counts["p3dc_batches"]) < float(counts["p3dc_images"]) == 70


def test_connections_that_say_nothing_keep_nobody_out(network):
    """More of them than the server may have open files, in bursts, some with half a header."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with serving("--backbone", network) as client, ExitStack() as silent:
        resource.prlimit(client.process.pid, resource.RLIMIT_NOFILE, (1024, 4096))
        for _ in range(12):
            client.process.send_signal(signal.SIGSTOP)
            burst = [silent.enter_context(socket.create_connection(client.place, timeout=30)) for _ in range(100)]
            for each in burst[::2]:
                each.sendall(b"GET /v1/project HTTP/1.1\r\nHost: local")
            client.process.send_signal(signal.SIGCONT)
            assert client.get("/v1/project").status_code == 200
        status = client.post("/v1/photos", files=files(picture())).status_code
        errors = stop(client)[1]
        assert status == 201, errors
        assert len(errors) < 10_000, "what is logged is bounded"


def test_a_server_waits_for_what_it_is_doing_when_it_is_stopped(network, tmp_path):
    with serving("--backbone", network, "--project", tmp_path, "--priors", "none") as client:
        make(client, "last")
        line = socket.create_connection(client.place, timeout=60)
        line.sendall(b"GET /v1/health HTTP/1.1\r\n")
        assert stop(client)[0] == 128 + signal.SIGTERM
        line.close()
    project = Project(tmp_path, load_backbone(network), State(), "none")
    assert [each.name for each in project.state.classes] == ["last"]
    project.store.close()


def test_without_a_folder_a_project_is_kept_with_the_users_data(network, fitted, data_home):
    data = data_home / "p3dc" / "projects"
    with serving("--backbone", network, "--priors", "none") as client:
        (kept,) = data.iterdir()
        assert f"(project in {kept}; Ctrl-C stops)" in client.line
        make(client, "kept")
        listed = client.get("/v1/projects").json()
        assert (listed["folder"], listed["open"]) == (str(data), kept.name)
        assert client.post("/v1/projects", json={"name": "other"}).json()["open"] == "other"
        assert client.get("/v1/project").json()["classes"] == []
        assert [(each["name"], each["classes"]) for each in client.get("/v1/projects").json()["projects"]] == [
            ("other", 0),
            (kept.name, 1),
        ]
        stop(client)
    for name in (fitted.stem, f"{fitted.stem} 2"):
        with serving(fitted, "--backbone", network) as client:
            assert str(data / name) in client.line


def test_every_window_hears_of_changes_until_the_server_stops(network, tmp_path):
    with (
        serving("--backbone", network, "--project", tmp_path / "birds", "--priors", "none") as client,
        client.stream("GET", "/v1/events") as events,
        client.stream("GET", "/v1/events") as others,
    ):
        lines, more = events.iter_lines(), others.iter_lines()
        first = 'data: {"revision": 0, "project": "birds"}'
        for heard in (lines, more):
            assert [next(heard) for _ in range(3)] == ["event: revision", first, ""]
        make(client, "cat")
        for heard in (lines, more):
            assert [next(heard) for _ in range(2)][1] == first.replace("0", "1")
        began = time.monotonic()
        assert stop(client)[1] == ""
        assert time.monotonic() - began < 8
