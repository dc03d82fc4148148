"""What is read from an ONNX graph itself: loops, its external files, and its last layer."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from p3dc._arrays import Floats
from p3dc.errors import InputError
from p3dc.images.backbones.backbone import first_line
from p3dc.images.backbones.onnx_messages import (
    FLOAT,
    FLOAT16,
    GRAPH,
    Model,
    external_facts,
    integer_attribute,
    messages,
    read_array,
    text,
)

MOST_NODES = 1_000_000
"""More operators, each counted as often as functions that call each other repeat it, are refused."""

DEEPEST = 100
"""Functions and branches inside each other, at most."""

FUNCTIONS = 25
"""The field of a model that holds its functions."""


def check_ends(content: bytes) -> None:
    """Refuse a graph that may run for ever: one with loops, or with functions that multiply each other."""
    try:
        functions = {_function_key(each): each for each in messages(content, FUNCTIONS)}
        n_nodes = _Counter(functions).count([node for graph in messages(content, GRAPH) for node in messages(graph, 1)])
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"it is not an ONNX model that can be read ({first_line(error)}). Export it again.") from None
    if n_nodes > MOST_NODES:
        raise InputError(f"it has more than {MOST_NODES:,} operators. Export it again.")


class _Counter:
    """Counts how many operators run, with those in branches and functions."""

    def __init__(self, functions: dict[tuple[str, ...], memoryview]) -> None:
        self.functions, self.sizes = functions, dict[tuple[str, ...], int]()

    def count(self, nodes: Iterable[memoryview], depth: int = 0) -> int:
        if depth > DEEPEST:
            raise InputError("its functions and branches lie too deep in each other. Export it again.")
        total = 0
        for node in nodes:
            operation = text(node, 4)
            graphs = [graph for each in messages(node, 5) for number in (6, 11) for graph in messages(each, number)]
            if operation != "If" and any(messages(graph, 1) for graph in graphs):  # Loop, Scan and the like
                raise InputError(f"it has a {operation}, which may run for ever. Export it without loops.")
            key = (text(node, 7), operation, text(node, 8))
            if key in self.functions and key not in self.sizes:
                self.sizes[key] = self.count(messages(self.functions[key], 7), depth + 1)
            branches = sum(self.count(messages(graph, 1), depth + 1) for graph in graphs)
            total += 1 + self.sizes.get(key, 0) + branches
        return total


def _function_key(function: memoryview) -> tuple[str, ...]:
    return text(function, 10), text(function, 1), text(function, 13)


def external_files(content: bytes) -> list[str]:
    """List the files that hold weights of a graph, by their paths from its own file."""
    if b"location" not in content:  # the key of every such path
        return []
    facts = map(external_facts, Model.parse(content).constants.values())
    return sorted({each["location"] for each in facts if "location" in each})


def cut_head(content: bytes, output: str, external: dict[str, bytes]) -> tuple[bytes, Floats] | None:
    """Cut the last layer off a graph that classifies.

    Parameters
    ----------
    content : bytes
        The graph.
    output : str
        The output that the last layer makes.
    external : dict
        The content of the graph's external files.

    Returns
    -------
    The graph whose output is what the last layer took, and the weights of that layer, (n_classes, n_features); None
    where the output does not come from a product with constant weights.
    """
    model = Model.parse(content)
    last = model.makers.get(output)
    if last is not None and last.operation == "Add":  # the bias, after a plain product
        inputs = [name for name in last.inputs if name not in model.constants]
        last = model.makers.get(inputs[0]) if len(inputs) == 1 else None
    if last is None or last.operation not in ("Gemm", "MatMul") or last.inputs[1] not in model.constants:
        return None
    weights = read_array(model.constants[last.inputs[1]], external)
    if weights is None or weights.ndim != 2 or integer_attribute(last, "transA"):
        return None
    rows = weights if integer_attribute(last, "transB") else weights.T
    kind = FLOAT16 if weights.dtype == np.float16 else FLOAT
    return model.ending_in(last.inputs[0], kind), np.ascontiguousarray(rows, dtype=np.float32)


def read_external(folder: Path, names: list[str]) -> dict[str, bytes]:
    """Read external files, which must lie in or below the folder of the graph."""
    content = {}
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise InputError(f"its weights lie outside its folder, in {name!r:.80}. Export it again.")
        try:
            content[name] = (folder / name).read_bytes()
        except OSError as error:
            raise InputError(f"{name}, which holds its weights, cannot be read ({error.strerror}). Fetch it.") from None
    return content
