"""Leave out what needs torch where torch is not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["src/p3dc/images/torch_backbone.py", "src/p3dc/torch_engine"]
