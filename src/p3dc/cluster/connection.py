"""Starting a Ray or joining one, and telling in a sentence what goes wrong on it."""

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from p3dc.errors import InputError
from p3dc.images.backbones.backbone import n_cores

QUIET = {"RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_USAGE_STATS_ENABLED": "0"}
PATIENCE = 10  # seconds
RETRIES = 20
"""How often work is given to another process when one dies."""

SHARES = 4
"""Pieces of work for each process at least, so that all of them end at about the same time."""


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
    """Join a Ray for a while, or start one on this machine and stop it in the end.

    Parameters
    ----------
    address : str, optional
        ``host:port`` of a Ray that runs, or ``"auto"`` on one of its machines. Without it, this process's own Ray is
        used where it has joined one, else a new one with all cores of this machine.
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
    where: dict[str, Any] = {"address": "local", "num_cpus": n_cores(), "include_dashboard": False}
    if address is not None:
        _check_address(address)
        where = {"address": address}
    try:
        with _hushed():
            ray.init(**where, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _no_ray(address or "local", error) from None
    try:
        yield
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Knock, for Ray itself would wait for many minutes."""
    host, colon, port = address.rpartition(":")
    if address == "auto":
        return
    if not colon or not host or not port.isdecimal() or "/" in host:
        raise InputError(f"{address!r} is no address of a Ray. Give host:port, or auto on one of its machines.")
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise _no_ray(address, error) from None


def _no_ray(address: str, error: Exception) -> InputError:
    why = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
    return InputError(f"no Ray can be joined at {address} ({why}). Start one with ray start --head.")


@contextmanager
def _hushed() -> Iterator[None]:
    """Keep to itself what Ray's own code, not Python's, says on standard error: that its log level was read."""
    with Path(os.devnull).open("w") as nowhere:
        before = os.dup(2)
        try:
            os.dup2(nowhere.fileno(), 2)
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise a mistake that a worker found as if it had been found here."""
    from ray.exceptions import RayTaskError

    try:
        yield
    except RayTaskError as error:
        if isinstance(error.cause, InputError | OSError):
            raise error.cause from None
        raise


@cache
def on_one_core(work: Callable[..., Any]) -> Any:
    """Let some process of the Ray do work, and another when that one dies."""
    return load_ray().remote(num_cpus=1, max_retries=RETRIES)(work)


def n_workers() -> int:
    """Count the cores of the Ray that is joined."""
    return max(1, int(load_ray().cluster_resources().get("CPU", 1)))
