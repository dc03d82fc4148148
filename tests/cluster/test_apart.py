"""Ray on hosts that share nothing but a store.

Each host is a set of namespaces of this machine: its own network behind a virtual link, its own processes, its own
temporary files and shared memory. It can write to nothing else. An S3 server is all that the hosts have in common.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from p3dc import FeatureSet
from p3dc.images.extraction import extract as extract_here
from p3dc.images.sources import list_images
from p3dc.io.store import location
from tests.cluster.conftest import PATIENCE, SOON_MISSED, until
from tests.cluster.test_extraction import PARTS
from tests.images.test_extraction import Colours, make_photos
from tests.stores import ACCOUNT, make_bucket, s3_server, upload

pytestmark = pytest.mark.ray

ROOT = Path(__file__).parents[2]
NETWORK = "10.213.77"
PORT = 6399


class Waiting(Colours):
    """Writes to the store that its host is at work, and waits there until it may go on."""

    def __init__(self, gate):
        super().__init__()
        self.gate = location(gate)

    def _embed(self, batch):
        if not (self.gate / "open").exists():
            (self.gate / "at-work" / os.environ["HOST"]).write_bytes(b"1")
            until((self.gate / "open").exists)
        return super()._embed(batch)


def load_waiting(gate, threads):
    return Waiting(gate)


DRIVER = """
import sys
from functools import partial
from p3dc.cluster.connection import connected
from p3dc.cluster.extraction import extract
from p3dc.cluster.priors import average
from p3dc.images.sources import list_images
from tests.cluster.test_apart import PARTS, load_waiting

bucket, address = sys.argv[1:]
with connected(address):
    done = extract(list_images(f"{bucket}/photos"), partial(load_waiting, f"{bucket}/gate"), f"{bucket}/out", **PARTS)
    priors = average(done.folder)
print(done.n_files, done.n_rows, done.n_kept, *priors.counts)
"""


def run(*command):
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)


@contextmanager
def switch(name):
    """Make a virtual switch; this process has the first address on it."""
    try:
        run("ip", "link", "add", name, "type", "bridge")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"virtual links are not permitted here ({error})")
    try:
        run("ip", "addr", "add", f"{NETWORK}.1/24", "dev", name)
        run("ip", "link", "set", name, "up")
        yield name
    finally:
        run("ip", "link", "del", name)


class Host:
    """A machine of its own as far as its processes can see."""

    def __init__(self, switch, number, own, environment):
        self.ip = f"{NETWORK}.{number}"
        self.environment = environment | {"HOST": f"host-{number}", "RAY_TMPDIR": own, "TMPDIR": own, "HOME": own}
        # The first process of the namespaces: when it is killed, the kernel ends all others and removes the link.
        mounts = (f"-t tmpfs own {own}", "-t tmpfs own /dev/shm", "-o remount,bind,ro /")
        setup = " && ".join([*(f"mount {what}" for what in mounts), "echo up", "cat"])
        command = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", setup]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if self.process.stdout.readline() != b"up\n":
            pytest.skip(f"namespaces are not permitted here ({self.process.communicate()[1].decode().strip()})")
        self.first = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0]
        link = f"{switch}-{number}"
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", self.first)
        run("ip", "link", "set", link, "master", switch, "up")
        for settings in (("link", "set", "lo", "up"), ("addr", "add", f"{self.ip}/24", "dev", "eth0")):
            run("nsenter", "-t", self.first, "-n", "ip", *settings)
        run("nsenter", "-t", self.first, "-n", "ip", "link", "set", "eth0", "up")

    def start(self, *command):
        inside = ("nsenter", "-t", self.first, "-n", "-m", "-p", *map(str, command))
        return subprocess.Popen(
            inside, env=self.environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def take_away(self):
        self.process.kill()
        self.process.communicate()


def outcome(process):
    said, errors = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == 0, errors
    return said


@pytest.fixture
def hosts(monkeypatch):
    """Three hosts with a worker each, joined to a Ray cluster; the first is its head."""
    own = tempfile.mkdtemp(prefix="own-", dir="/tmp")
    ray = str(Path(sys.executable).with_name("ray"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, own)
        bridge = stack.enter_context(switch(f"p3dc{os.getpid() % 10_000}"))
        address = stack.enter_context(s3_server(monkeypatch, f"{NETWORK}.1"))
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", **ACCOUNT}
        environment |= {"AWS_ENDPOINT_URL": address, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
        found = []
        for number in (2, 3, 4):
            found.append(Host(bridge, number, own, environment))
            stack.callback(found[-1].take_away)
        common = ("start", "--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats")
        head, *others = found
        settings = f"--system-config={json.dumps(SOON_MISSED)}"
        node = f"--node-ip-address={head.ip}"
        outcome(head.start(ray, *common, "--head", node, f"--port={PORT}", "--include-dashboard=false", settings))
        joining = [
            host.start(ray, *common, f"--address={head.ip}:{PORT}", f"--node-ip-address={host.ip}") for host in others
        ]
        for process in joining:
            outcome(process)
        yield found


def test_a_host_taken_away_loses_no_row_and_doubles_none(hosts, tmp_path):
    bucket = make_bucket("shared-by-all")
    upload(make_photos(tmp_path / "photos"), f"{bucket}/photos")
    expected = extract_here(list_images(f"{bucket}/photos"), Colours(), f"{bucket}/expected", **PARTS)
    driver = hosts[0].start(sys.executable, "-c", DRIVER, bucket, f"{hosts[0].ip}:{PORT}")
    at_work = location(f"{bucket}/gate/at-work")
    until(lambda: len(list(at_work.entries())) == 3 or driver.poll() is not None)
    assert driver.poll() is None
    hosts[2].take_away()
    location(f"{bucket}/gate/open").write_bytes(b"1")
    assert outcome(driver).splitlines()[-1] == "21 18 0 6 6 6"  # before it, Ray reports that a host has gone
    found = {path.name: path.read_bytes() for path, _ in location(f"{bucket}/out").entries()}
    assert found == {path.name: path.read_bytes() for path, _ in location(f"{bucket}/expected").entries()}
    read = FeatureSet.load(f"{bucket}/out")
    assert len(read) == len(set(read.ids)) == expected.n_rows
