"""The methods that P3DC-Shot is compared with; :mod:`p3dc.baselines.registry` lists them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from p3dc.baselines.contract import TaskMethod


def __getattr__(name: str) -> "type[TaskMethod]":
    from p3dc.baselines.registry import METHODS

    for method in METHODS.values():
        if method.home.endswith(f".{name}"):
            return method.kind
    raise AttributeError(f"module 'p3dc.baselines' has no attribute {name!r}")


def __dir__() -> list[str]:
    from p3dc.baselines.registry import METHODS

    return sorted(method.home.partition(".")[2] for method in METHODS.values())
