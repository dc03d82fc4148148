"""The directive ``http-routes``: the reference of the HTTP interface, made from its OpenAPI document."""

import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from docutils.nodes import Node
from fastapi.openapi.utils import get_openapi
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from p3dc.app.http.routes import api

Json = dict[str, Any]


class HttpRoutes(SphinxDirective):
    """List every route with its parameters, bodies, responses and errors, then the shapes that they share."""

    def run(self) -> list[Node]:
        """Write Markdown and parse it, whenever the site is built."""
        self.env.note_reread()
        document = get_openapi(title="p3dc", version="1", routes=api.routes)
        return self.parse_text_to_nodes("\n".join(describe(document)), allow_section_headings=True)


def describe(document: Json) -> Iterator[str]:
    """Write the whole document as Markdown."""
    operations = [(path, method, one) for path, methods in document["paths"].items() for method, one in methods.items()]
    everywhere = set.intersection(*({s for s in one["responses"] if s >= "400"} for _, _, one in operations))
    yield "## Errors of every route\n"
    yield f"Each error is an {_link('Error')}. Any route may answer with one of these:\n"
    yield "| status | meaning |\n|---|---|"
    for status in sorted(everywhere):
        yield f"| {status} | {HTTPStatus(int(status)).phrase} |"
    yield "\n## Routes\n"
    for path, method, operation in operations:
        yield from _route(path, method, operation, everywhere)
    yield "\n## Shapes\n"
    for name, schema in document["components"]["schemas"].items():
        yield from _shape(name, schema)


def _route(path: str, method: str, operation: Json, everywhere: set[str]) -> Iterator[str]:
    yield f"\n### {method.upper()} {path}\n\n{operation['description']}\n"
    rows = [
        (f"`{one['name']}`", one["in"], _type(one["schema"]), "" if one.get("required") else "optional")
        for one in operation.get("parameters", ())
    ]
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        rows.append(("body", f"`{kind}`", _type(content["schema"]), ""))
    for status, response in operation["responses"].items():
        if status < "400":
            kinds = response.get("content", {})
            shapes = "; ".join(
                _type(one["schema"]) if one.get("schema") else f"`{kind}`" for kind, one in kinds.items()
            )
            rows.append((f"response {status}", "", shapes or "nothing", ""))
    own = sorted(status for status in operation["responses"] if status >= "400" and status not in everywhere)
    if own:
        rows.append(("errors", "", ", ".join(f"{s} {HTTPStatus(int(s)).phrase}" for s in own), ""))
    yield from _table([[a, " ".join(filter(None, (b, c))) + (f" *({d})*" if d else "")] for a, b, c, d in rows])


def _shape(name: str, schema: Json) -> Iterator[str]:
    yield f"\n({_anchor(name)})=\n\n### {name}\n\n{_flat(schema.get('description', ''))}\n"
    required = schema.get("required", ())
    rows = [
        [f"`{field}`", _type(one) + ("" if field in required else " *(optional)*")]
        for field, one in schema.get("properties", {}).items()
    ]
    yield from _table(rows)


def _type(schema: Json) -> str:
    """Say in words what a value may be, with links to the shapes."""
    if "$ref" in schema:
        return _link(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "prefixItems" in schema:
        return "[" + ", ".join(_type(one) for one in schema["prefixItems"]) + "]"
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if kind == "object" and "properties" in schema:
        return ", ".join(f"`{name}`: {_type(one)}" for name, one in schema["properties"].items())
    if schema.get("format") == "binary" or "contentMediaType" in schema:
        return "file"
    limits = [f"{word} {schema[key]}" for key, word in LIMITS.items() if key in schema]
    return f"{kind} ({', '.join(limits)})" if limits else str(kind)


LIMITS = {"minimum": "at least", "maximum": "at most", "maxLength": "characters at most"}


def _anchor(name: str) -> str:
    return "shape-" + re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def _link(name: str) -> str:
    return f"[{name}](#{_anchor(name)})"


def _flat(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


def _table(rows: list[list[str]]) -> Iterator[str]:
    if rows:
        yield "\n:::{list-table}\n:widths: 26 74\n:class: parameters\n"
        for first, second in rows:
            yield f"* - {first}\n  - {second}"
        yield ":::\n"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("http-routes", HttpRoutes)
    return {"parallel_read_safe": True}
