"""What is read from an ONNX graph itself: its external files, and its last layer."""

from pathlib import Path

import numpy as np

from p3dc._arrays import Floats
from p3dc.errors import InputError
from p3dc.images.backbones.onnx_messages import FLOAT, FLOAT16, Model, external_facts, integer_attribute, read_array


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
