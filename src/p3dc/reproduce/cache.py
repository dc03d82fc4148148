"""A cache of finished parts, so that an interrupted run continues where it stopped."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from p3dc.io.atomic import write_json


@dataclass(frozen=True)
class Cache:
    """JSON values in a folder, each under a key and under everything that it depends on."""

    folder: Path
    context: str  # what all values depend on; values of another context are ignored

    def get(self, key: str, compute: Callable[[], Any]) -> Any:
        """Return the value of a key, or compute and keep it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(key)
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            value = compute()
            write_json(path, value)
            return value

    def __contains__(self, key: str) -> bool:
        return self._path(key).exists()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}-{sha256(f'{self.context} {key}'.encode()).hexdigest()[:12]}.json"
