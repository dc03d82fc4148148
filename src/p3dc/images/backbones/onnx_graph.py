"""What is read from an ONNX graph itself, with the onnx package: loops, its external files, and its last layer."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from p3dc._arrays import Floats
from p3dc.errors import InputError
from p3dc.images.backbones.backbone import first_line

if TYPE_CHECKING:
    import onnx

MOST_NODES = 1_000_000
"""More operators, each counted as often as functions that call each other repeat it, are refused."""


def check_ends(content: bytes) -> None:
    """Refuse a graph that may run for ever: one with loops, or with functions that multiply each other."""
    model = _parse(content)
    functions = {(each.domain, each.name, each.overload): each for each in model.functions}
    sizes: dict[tuple[str, str, str], int] = {}

    def count(nodes: Iterable["onnx.NodeProto"], depth: int) -> int:
        """Return how many operators run, with those in branches and functions."""
        total = 0
        for node in nodes:
            graphs = [each for attribute in node.attribute for each in (attribute.g, *attribute.graphs) if each.node]
            if graphs and node.op_type != "If":  # Loop, Scan and the like
                raise InputError(f"it has a {node.op_type}, which may run for ever. Export it without loops.")
            if depth > 100:
                raise InputError("its functions and branches lie too deep in each other. Export it again.")
            key = (node.domain, node.op_type, node.overload)
            if key in functions and key not in sizes:
                sizes[key] = count(functions[key].node, depth + 1)
            total += 1 + sizes.get(key, 0) + sum(count(graph.node, depth + 1) for graph in graphs)
        return total

    try:
        n_nodes = count(model.graph.node, 0)
    except UnicodeDecodeError:
        raise InputError("it has names that are not text. Export it again.") from None
    if n_nodes > MOST_NODES:
        raise InputError(f"it has more than {MOST_NODES:,} operators. Export it again.")


def external_files(content: bytes) -> list[str]:
    """List the files that hold weights of a graph, by their paths from its own file."""
    if b"location" not in content:  # the key of every such path
        return []
    model = _parse(content)
    entries = (entry for tensor in model.graph.initializer for entry in tensor.external_data)
    return sorted({entry.value for entry in entries if entry.key == "location"})


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
    from onnx import TensorProto, helper

    model = _parse(content)
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    constants |= {
        node.output[0]: node.attribute[0].t
        for node in graph.node
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value"
    }
    last = makers.get(output)
    if last is not None and last.op_type == "Add":  # the bias, after a plain product
        inputs = [name for name in last.input if name not in constants]
        last = makers.get(inputs[0]) if len(inputs) == 1 else None
    if last is None or last.op_type not in ("Gemm", "MatMul") or last.input[1] not in constants:
        return None
    weights = _array(constants[last.input[1]], external)
    if weights.ndim != 2:
        return None
    flags = {attribute.name: attribute.i for attribute in last.attribute if attribute.name in ("transA", "transB")}
    if flags.get("transA"):
        return None
    rows = weights if flags.get("transB") else weights.T
    kind = TensorProto.FLOAT16 if weights.dtype == np.float16 else TensorProto.FLOAT
    del graph.output[:]  # ONNX Runtime leaves out what no output needs
    graph.output.append(helper.make_tensor_value_info(last.input[0], kind, None))
    return bytes(model.SerializeToString()), np.ascontiguousarray(rows, dtype=np.float32)


def _array(tensor: "onnx.TensorProto", external: dict[str, bytes]) -> Floats:
    from onnx import TensorProto, numpy_helper

    if tensor.external_data:
        facts = {entry.key: entry.value for entry in tensor.external_data}
        data, start = external[facts["location"]], int(facts.get("offset", 0))
        whole = TensorProto(data_type=tensor.data_type, dims=tensor.dims)
        whole.raw_data = data[start : start + int(facts.get("length", len(data) - start))]
        tensor = whole
    return np.asarray(numpy_helper.to_array(tensor))


def _parse(content: bytes) -> "onnx.ModelProto":
    import onnx

    try:
        return onnx.load_from_string(content)
    except Exception as error:  # whatever the parser raises
        raise InputError(f"it is not an ONNX model that can be read ({first_line(error)}). Export it again.") from None


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
