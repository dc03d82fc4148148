"""Measure the service under load: photos a second, failed requests, memory, and what a kill -9 loses.

``python -m benchmarks.serving [--clients 16] [--seconds 60] [--kill] [--hostile 200]`` starts ``p3dc serve`` with a
project folder, teaches five classes and lets clients send JPEGs of 500 × 375 one at a time over persistent connections.
Every tenth request adds an example, which its client deletes ten requests later. With ``--kill`` the server is killed
in the middle and started again; at the end every example whose addition was answered must be there, and none whose
deletion was.
With ``--hostile N`` there are N connections beside the clients that say nothing, that never end their headers, or that
upload a byte at a time; each is opened again as soon as the server closes it.
"""

import argparse
import http.client
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.extraction import make_photos
from p3dc.images.backbones.backbone import n_cores

CLASSES = ("one", "two", "three", "four", "five")
BOUNDARY = "p3dc-photos"


class Server:
    """A process of ``p3dc serve``, which may begin with a model file."""

    def __init__(self, project: Path, *model: str) -> None:
        options = ["--project", str(project), "--no-browser", "--port"]
        self.command = [sys.executable, "-m", "p3dc", "serve", *model, *options]
        self.port = 0
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen([*self.command, str(self.port)], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().split("localhost:")[1].split("/")[0])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()

    def megabytes(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") / 1e6


class Client:
    """A connection that is reopened when it breaks."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> tuple[int, Any]:
        if self.connection is None:
            self.connection = http.client.HTTPConnection("localhost", self.server.port, timeout=60)
        try:
            self.connection.request(method, path, body, {"Content-Type": kind} if body else {})
            answer = self.connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        except (OSError, http.client.HTTPException):
            self.connection.close()
            self.connection = None
            raise

    def send(self, path: str, photo: bytes) -> tuple[int, Any]:
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="images"; filename="photo.jpg"\r\n\r\n'
        body = head.encode() + photo + f"\r\n--{BOUNDARY}--\r\n".encode()
        return self.ask("POST", path, body, f"multipart/form-data; boundary={BOUNDARY}")


@dataclass
class Tally:
    """What the clients saw."""

    seconds: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    broken: int = 0
    there: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)


def work(server: Server, photos: list[bytes], classes: list[str], until: float, tally: Tally, seed: int) -> None:
    """Send requests as one client until the time is up."""
    rng, client, mine = random.Random(seed), Client(server), list[tuple[int, str]]()
    n_asked = 0
    while time.monotonic() < until:
        n_asked += 1
        adding = n_asked % 10 == 0
        path = f"/v1/classes/{rng.choice(classes)}/examples" if adding else "/v1/classify"
        start = time.perf_counter()
        try:
            status, answer = client.send(path, rng.choice(photos))
            if status not in (200, 201):
                tally.failed.append(f"{status} {answer}")
                continue
            tally.seconds.append(time.perf_counter() - start)
            if adding:
                identity = answer["added"][0]["id"]
                tally.there.add(identity)
                mine.append((n_asked, identity))
            if mine and mine[0][0] <= n_asked - 10:
                identity = mine.pop(0)[1]
                tally.there.discard(identity)  # until the deletion is answered, both outcomes are right
                if client.ask("DELETE", f"/v1/photos/{identity}")[0] == 200:
                    tally.gone.add(identity)
        except (OSError, http.client.HTTPException):  # nothing was answered
            tally.broken += 1
            time.sleep(0.1)


class HostileConnections:
    """Connections that keep the server waiting, a third of them in each of three ways."""

    BEGINNINGS = (
        b"",
        b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nX-Endless: ",
        b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n"
        b"Content-Type: multipart/form-data; boundary="
        + BOUNDARY.encode()
        + b"\r\n\r\n--"
        + BOUNDARY.encode()
        + b"\r\n"
        b'Content-Disposition: form-data; name="images"; filename="photo.jpg"\r\n\r\n',
    )

    def __init__(self, server: Server, number: int, until: float) -> None:
        self.server, self.number, self.until = server, number, until
        self.open = self.reopened = 0

    def run(self) -> None:
        """Keep all connections open until the time is up."""
        lines: list[socket.socket | None] = [None] * self.number
        while time.monotonic() < self.until:
            for place, line in enumerate(lines):
                try:
                    lines[place] = self._go_on(line, self.BEGINNINGS[place % 3])
                except OSError:  # refused, or closed by the server
                    lines[place] = None
                    self.reopened += 1
            self.open = sum(line is not None for line in lines)
            time.sleep(0.5)
        for line in lines:
            if line is not None:
                line.close()

    def _go_on(self, line: socket.socket | None, beginning: bytes) -> socket.socket:
        if line is None:
            line = socket.create_connection(("localhost", self.server.port), timeout=5)
            line.sendall(beginning)
            return line
        if beginning:
            line.sendall(b"a")
        line.setblocking(False)
        try:
            if not line.recv(4096):
                raise ConnectionError
        except BlockingIOError:
            pass  # it is still open
        line.settimeout(5)
        return line


def teach(server: Server, photos: list[bytes]) -> list[str]:
    """Make five classes of five photos each and return their ids."""
    client = Client(server)
    classes = [client.ask("POST", "/v1/classes", json.dumps({"name": name}).encode())[1]["id"] for name in CLASSES]
    for number, identity in enumerate(classes):
        for photo in photos[number::5][:5]:
            assert client.send(f"/v1/classes/{identity}/examples", photo)[0] == 201
    return classes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--hostile", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "photos").mkdir()
        make_photos(Path(name) / "photos", 100)
        photos = [path.read_bytes() for path in sorted((Path(name) / "photos").rglob("*.jpg"))]
        server = Server(Path(name) / "project")
        classes = teach(server, photos)
        tally, memory = Tally(), list[float]()
        start = time.monotonic()
        threads = [
            threading.Thread(target=work, args=(server, photos, classes, start + given.seconds, tally, seed))
            for seed in range(given.clients)
        ]
        hostile = HostileConnections(server, given.hostile, start + given.seconds)
        threads.append(threading.Thread(target=hostile.run))
        for thread in threads:
            thread.start()
        killed = not given.kill
        while any(thread.is_alive() for thread in threads):
            time.sleep(1)
            if not killed and time.monotonic() > start + given.seconds / 2:
                server.kill()
                server.start()
                killed = True
            memory.append(server.megabytes())
        took = time.monotonic() - start
        held = {photo["id"] for photo in Client(server).ask("GET", "/v1/project")[1]["photos"]}
        server.stop()
    ordered = sorted(tally.seconds)
    print(f"{n_cores()} cores, {given.clients} clients, {took:.0f} s: {len(ordered):,} photos answered")
    print(f"{len(ordered) / took:.0f} photos a second, {len(tally.failed)} failed, {tally.broken} connections broken")
    print(f"answer after {statistics.median(ordered):.2f} s; 99 % within {ordered[int(0.99 * len(ordered))]:.2f} s")
    marks = [memory[int(share * (len(memory) - 1))] for share in (0.1, 0.25, 0.5, 0.75, 1)]
    print("memory: " + ", ".join(f"{each:.0f}" for each in marks) + " MB on the way")
    lost, back = len(tally.there - held), len(tally.gone & held)
    print(f"{len(tally.there | tally.gone):,} examples added; {lost} lost, {back} came back after they were deleted")
    for reason in tally.failed[:5]:
        print(reason)
    if tally.failed or lost or back or (tally.broken and not given.kill):
        sys.exit(1)


if __name__ == "__main__":
    main()
