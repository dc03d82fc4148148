"""The messages of ONNX models, as far as networks here need them; field numbers are those of onnx.proto."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from p3dc.errors import InputError
from p3dc.images.backbones.backbone import first_line
from p3dc.io.protobuf import Message, read_fields, read_integers, write_field

OPSET, IR_VERSION = 17, 8
FLOAT, FLOAT16 = 1, 10
TYPES = {FLOAT: "<f4", 2: "|u1", 3: "|i1", 6: "<i4", 7: "<i8", FLOAT16: "<f2", 11: "<f8"}
NUMBERS = {np.dtype(kind): number for number, kind in TYPES.items()}
FLOATS, RAW = 4, 9
"""The fields of a tensor that may hold its values."""

GRAPH, GRAPH_OUTPUT, EXTERNAL = 7, 12, 13
INTEGER_ATTRIBUTE, INTEGERS_ATTRIBUTE = 2, 7


class Node(NamedTuple):
    """An operation of a graph."""

    operation: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, memoryview]


@dataclass(frozen=True, eq=False)
class Model:
    """A model whose graph is read."""

    content: bytes
    nodes: list[Node]
    constants: dict[str, memoryview]
    """Tensors by name: weights, and the values of constant nodes."""

    outputs: list[str]

    @classmethod
    def parse(cls, content: bytes) -> "Model":
        """Read a model from the content of its file."""
        try:
            (graph,) = messages(content, GRAPH)
            nodes = [_node(each) for each in messages(graph, 1)]
            constants = {text(each, 8): each for each in messages(graph, 5)}
            for node in nodes:
                if node.operation == "Constant" and "value" in node.attributes:
                    (constants[node.outputs[0]],) = messages(node.attributes["value"], 5)
            return cls(content, nodes, constants, [text(each, 1) for each in messages(graph, GRAPH_OUTPUT)])
        except (ValueError, IndexError) as error:
            why = first_line(error)
            raise InputError(f"it is not an ONNX model that can be read ({why}). Export it again.") from None

    @cached_property
    def makers(self) -> dict[str, Node]:
        """The node that makes each value."""
        return {name: node for node in self.nodes for name in node.outputs}

    def ending_in(self, name: str, kind: int = FLOAT) -> bytes:
        """Return the model with one value of its graph as its only output; ONNX Runtime drops what no output needs."""
        (graph,) = messages(self.content, GRAPH)
        kept = [field.whole for field in read_fields(graph) if field.number != GRAPH_OUTPUT]
        new = write_field(GRAPH, b"".join([*kept, write_field(GRAPH_OUTPUT, write_value(name, kind))]))
        return b"".join(new if field.number == GRAPH else field.whole for field in read_fields(self.content))


def integer_attribute(node: Node, name: str) -> int:
    """Return an integer attribute of a node, 0 where it is absent."""
    values = [field.value for field in read_fields(node.attributes.get(name, b"")) if field.number == 3]
    return int(values[-1]) if values and isinstance(values[-1], int) else 0


def external_facts(tensor: Message) -> dict[str, str]:
    """Return where a tensor's values lie in another file: its location, offset and length."""
    return {text(entry, 1): text(entry, 2) for entry in messages(tensor, EXTERNAL)}


def read_array(tensor: Message, external: dict[str, bytes]) -> npt.NDArray[Any] | None:
    """Return the values of a tensor, or None for types and places that no weights have."""
    fields = [*read_fields(tensor)]
    dims = [each for field in fields if field.number == 1 for each in _integers(field.value)]
    number = next((field.value for field in fields if field.number == 2), None)
    facts = external_facts(tensor)
    if facts:
        data, start = external[facts["location"]], int(facts.get("offset", 0))
        held = [data[start : start + int(facts.get("length", len(data) - start))]]
    else:
        held = [*map(bytes, messages(tensor, RAW) or messages(tensor, FLOATS))]
    if not isinstance(number, int) or number not in TYPES or not held:
        return None
    return np.frombuffer(b"".join(held), TYPES[number]).reshape(dims)


def write_tensor(name: str, values: npt.NDArray[Any]) -> bytes:
    """Write a named tensor."""
    dims = b"".join(write_field(1, size) for size in values.shape)
    number, content = NUMBERS[values.dtype], values.tobytes()
    if values.ndim == 0 and number == FLOAT:  # where the onnx package puts it, so that digests of networks stay
        return dims + write_field(2, number) + write_field(FLOATS, content) + write_field(8, name)
    return dims + write_field(2, number) + write_field(8, name) + write_field(RAW, content)


def write_node(operation: str, inputs: Sequence[str], output: str, **attributes: int | Sequence[int]) -> bytes:
    """Write a node with attributes that are integers or lists of them."""
    fields = [*(write_field(1, name) for name in inputs), write_field(2, output), write_field(4, operation)]
    for name, value in sorted(attributes.items()):
        if isinstance(value, int):
            content = write_field(3, value) + write_field(20, INTEGER_ATTRIBUTE)
        else:
            content = b"".join(write_field(8, each) for each in value) + write_field(20, INTEGERS_ATTRIBUTE)
        fields.append(write_field(5, write_field(1, name) + content))
    return b"".join(fields)


def write_value(name: str, kind: int = FLOAT, shape: Sequence[str | int] | None = None) -> bytes:
    """Write the name, type and shape of an input or output; axes that are free have names."""
    tensor = write_field(1, kind)
    if shape is not None:
        axes = (write_field(1 if isinstance(size, int) else 2, size) for size in shape)
        tensor += write_field(2, b"".join(write_field(1, axis) for axis in axes))
    return write_field(1, name) + write_field(2, write_field(1, tensor))


def write_model(
    name: str, nodes: Sequence[bytes], constants: Sequence[bytes], given: Sequence[bytes], made: Sequence[bytes]
) -> bytes:
    """Write a model of nodes, tensors, inputs and outputs."""
    parts = {1: nodes, 2: [name.encode()], 5: constants, 11: given, GRAPH_OUTPUT: made}
    graph = b"".join(chain.from_iterable((write_field(place, each) for each in part) for place, part in parts.items()))
    opset = write_field(1, "") + write_field(2, OPSET)
    return write_field(1, IR_VERSION) + write_field(GRAPH, graph) + write_field(8, opset)


def messages(message: Message, number: int) -> list[memoryview]:
    """Return the messages, or texts, that a field holds."""
    found = [field.value for field in read_fields(message) if field.number == number]
    return [each for each in found if isinstance(each, memoryview)]


def text(message: Message, number: int) -> str:
    """Return the text that a field holds, the last one of several."""
    return "".join(bytes(each).decode() for each in messages(message, number)[-1:])


def _integers(value: int | memoryview) -> list[int]:
    return [value] if isinstance(value, int) else read_integers(value)


def _node(message: Message) -> Node:
    inputs, outputs = ([bytes(each).decode() for each in messages(message, number)] for number in (1, 2))
    return Node(text(message, 4), inputs, outputs, {text(each, 1): each for each in messages(message, 5)})
