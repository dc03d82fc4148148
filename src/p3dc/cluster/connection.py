"""Connection to a Ray cluster, or to one started on this machine, with its errors in one sentence."""

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from p3dc.errors import InputError
from p3dc.images.backbones.backbone import first_line, n_cores

QUIET = {"RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_USAGE_STATS_ENABLED": "0"}
CONNECT_SECONDS = 10
RETRIES = 20
"""How often work is handed to another process when one dies."""

SHARES = 4
"""Pieces of work for each process at least, so that all processes finish at about the same time."""


def load_ray() -> Any:
    """Import Ray, whose size makes it an extra."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise InputError('Ray is not installed. Run pip install "p3dc-shot[ray]".') from None
    return ray


@contextmanager
def connected(address: str | None = None) -> Iterator[None]:
    """Connect to a Ray cluster, or start one on this machine and stop it at the end.

    Parameters
    ----------
    address : str, optional
        ``host:port`` of a running cluster, or ``"auto"`` on one of its machines. Without it, the cluster that this
        process is already connected to, else a new one with all cores of this machine.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)  # read when Ray starts
    ray = load_ray()
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    if address is None and ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"address": "local", "num_cpus": n_cores(), "include_dashboard": False}
    if address is not None:
        _check_address(address)
        options = {"address": address}
    try:
        with _silenced():
            ray.init(**options, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _no_ray(address or "local", error) from None
    try:
        yield
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Check that something answers at the address, since Ray itself would wait for many minutes."""
    host, colon, port = address.rpartition(":")
    if address == "auto":
        return
    if not colon or not host or not port.isdecimal() or "/" in host:
        raise InputError(f"{address!r} is not a Ray address. Give host:port, or auto on one of its machines.")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _no_ray(address, error) from None


def _no_ray(address: str, error: Exception) -> InputError:
    reason = first_line(error).rstrip(".")
    return InputError(f"no Ray cluster can be reached at {address} ({reason}). Start one with ray start --head.")


@contextmanager
def _silenced() -> Iterator[None]:
    """Silence standard error of native code, where Ray reports that it has read its log level."""
    with Path(os.devnull).open("w") as null:
        before = os.dup(2)
        try:
            os.dup2(null.fileno(), 2)
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise a user's mistake that a worker found as if it had been found here."""
    from ray.exceptions import RayTaskError

    try:
        yield
    except RayTaskError as error:
        if isinstance(error.cause, InputError | OSError):
            raise error.cause from None
        raise


@cache
def on_one_core(work: Callable[..., Any]) -> Any:
    """Make a function a Ray task of one core, which another process repeats when its own dies."""
    return load_ray().remote(num_cpus=1, max_retries=RETRIES)(work)


def n_workers() -> int:
    """Count the cores of the connected cluster."""
    return max(1, int(load_ray().cluster_resources().get("CPU", 1)))
