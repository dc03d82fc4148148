"""A Ray cluster of two workers on this machine, and work that waits for a signal in its process."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

PATIENCE = 90  # seconds, after which a test has failed

SOON_MISSED = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}

RAYS_OWN = [r"ignore::DeprecationWarning:ray\..*"]
"""Warnings of Ray about its own code."""


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("ray"):
            item.add_marker(pytest.mark.filterwarnings(*RAYS_OWN))


@pytest.fixture(scope="session")
def cluster():
    """Connect to a new cluster of one node with two workers, to which nodes can be added."""
    from ray.cluster_utils import Cluster

    from p3dc.cluster.connection import connected

    node = {"num_cpus": 2, "include_dashboard": False, "_system_config": SOON_MISSED}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    with connected(cluster.address):
        yield cluster
    cluster.shutdown()


@pytest.fixture
def two_workers(cluster):
    """The address of a cluster of two workers."""
    return cluster.address


@pytest.fixture
def leaving(cluster):
    """Add a node with a third worker; its name, and a function that removes it."""
    import ray

    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    yield node.node_id, lambda: cluster.remove_node(node, allow_graceful=False)
    until(lambda: ray.cluster_resources()["CPU"] == 2)


class Gate:
    """Where workers wait until they are let through; files are the signals."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()
        (folder / "closed").touch()

    def pass_through(self):
        """Called by a worker."""
        import ray

        (self.folder / f"{ray.get_runtime_context().get_node_id()}-{os.getpid()}").touch()
        until(lambda: not (self.folder / "closed").exists())

    def waiting(self, n_workers):
        """Wait for some workers to come, and return the node and the process of each."""
        until(lambda: len(list(self.folder.glob("*-*"))) >= n_workers)
        return [(node, int(pid)) for node, pid in (path.name.split("-") for path in self.folder.glob("*-*"))]

    def open(self):
        (self.folder / "closed").unlink()


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture
def gate(tmp_path):
    return Gate(tmp_path / "gate")


@pytest.fixture
def meanwhile():
    """Start work in a thread, so that the test can interfere with it."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit
