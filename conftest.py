"""Leave out what needs torch where torch is not installed."""

from importlib.util import find_spec

NEEDS_TORCH = [
    "src/p3dc/images/backbones/timm_export.py",
    "src/p3dc/images/backbones/torch_network.py",
    "src/p3dc/scoring/torch_*.py",
]

collect_ignore_glob = [] if find_spec("torch") else NEEDS_TORCH
