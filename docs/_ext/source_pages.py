"""Names in the text lead to the API reference, and modules to their source.

Inline code that names something of the API reference, such as ``P3DCClassifier.explain``, becomes a link to it.
Modules, such as ``p3dc.scoring.kernel``, and Markdown links to ``src/p3dc/….py``, which work on a code host, lead to a
page with the source of that file; so do the documented classes and functions.
"""

import inspect
import pkgutil
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

SRC = Path(__file__).parents[2] / "src"
LINKED_FILE = re.compile(r"(?:\.\./)*src/(p3dc/[\w/]+\.py)$")
NAME = re.compile(r"(?:p3dc\.|[A-Z])[\w.]*(?:\(\))?$")
PUBLIC = ("p3dc.", "p3dc.baselines.", "p3dc.figures.")
REQUESTS = re.compile(r"set_\w+_request$")


class LinkNames(SphinxPostTransform):
    """Turn inline code that names something into a link to it."""

    default_priority = 5
    formats = ("html",)

    def run(self, **_: Any) -> None:
        """Replace the nodes."""
        for node in list(self.document.findall(nodes.literal)):
            linked = isinstance(node.parent, nodes.reference | addnodes.pending_xref | nodes.title)
            if not linked and NAME.match(node.astext()):
                link = link_to(self.app, self.env.docname, node.astext().removesuffix("()"), node.deepcopy())
                if link is not None:
                    node.replace_self(link)
        for node in list(self.document.findall(addnodes.download_reference)):
            found = LINKED_FILE.search(node["reftarget"])
            if found:
                node.replace_self(source_link(self.app, self.env.docname, found[1], 0, node.children))


def link_to(app: Sphinx, docname: str, name: str, text: nodes.Node) -> nodes.reference | None:
    """Link a name to its place in the API reference, else to its source, if there is either."""
    objects = app.env.domains["py"].objects
    homes = (name, *(prefix + name.removeprefix("p3dc.") for prefix in PUBLIC), f"p3dc.{name.rpartition('.')[2]}")
    for full in homes if not name.startswith("p3dc.") or name.count(".") > 1 else homes[:-1]:
        if full in objects:
            place = objects[full]
            return make_refnode(app.builder, docname, place.docname, place.node_id, [text])
    found = place_of(name) if name.startswith("p3dc.") else None
    return None if found is None else source_link(app, docname, *found, [text])


def place_of(name: str) -> tuple[str, int] | None:
    """Return the file and the line in which something is defined; 0 for the whole file."""
    try:
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError):  # torch may be missing
        file = SRC / (name.replace(".", "/") + ".py")
        return (file.relative_to(SRC).as_posix(), 0) if file.is_file() else None
    if not inspect.ismodule(found) and not callable(found) and not isinstance(found, property):
        module = pkgutil.resolve_name(name.rpartition(".")[0])  # a constant
        return place_of(module.__name__) if inspect.ismodule(module) else None
    found = inspect.unwrap(getattr(found, "fget", None) or found)
    try:
        path = Path(inspect.getsourcefile(found) or "").relative_to(SRC)
        return path.as_posix(), inspect.getsourcelines(found)[1]
    except (TypeError, OSError, ValueError):
        return None  # another package defines it


def source_link(app: Sphinx, docname: str, path: str, line: int, children: Sequence[nodes.Node]) -> nodes.reference:
    """Make a link to the page of a source file, and remember to write that page."""
    app.env.source_pages.add(path)
    uri = app.builder.get_relative_uri(docname, page_name(path)) + (f"#L-{line}" if line else "")
    return nodes.reference("", "", *children, internal=True, refuri=uri)


def page_name(path: str) -> str:
    """Return the name of the page of a source file."""
    return "source/" + path.removesuffix(".py")


def resolve(app: Sphinx, env: BuildEnvironment, node: Any, text: nodes.Node) -> nodes.reference | None:
    """Resolve a role of a docstring that Sphinx does not, from where it stands."""
    if node.get("refdomain") != "py":
        return None
    target, around = node["reftarget"], f"{node.get('py:module')}.{node.get('py:class')}"
    names = [target, target.rpartition(".")[0]]  # the class of an attribute
    if node.get("py:class"):
        names.append(f"{pkgutil.resolve_name(around).__module__}.{target}")
    links = (link_to(app, node["refdoc"], name, text) for name in names if name)
    return next((link for link in links if link is not None), None)


def add_source_links(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Add a link to the source to each documented class and function."""
    for signature in doctree.findall(addnodes.desc_signature):
        place = place_of(f"{signature['module']}.{signature['fullname']}") if signature.get("module") else None
        if place is not None:
            text = nodes.inline("", "[source]", classes=["source-link"])
            signature += source_link(app, docname, *place, [text])


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Write the pages of the files that are linked to."""
    formatter = HtmlFormatter(lineanchors="L", anchorlinenos=True, linenos="inline")
    for path in sorted(app.env.source_pages):
        code = highlight((SRC / path).read_text(), PythonLexer(), formatter)
        title = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        body = f'<h1>{title}</h1><div class="highlight-python notranslate">{code}</div>'
        yield page_name(path), {"title": title, "body": body, "parents": []}, "page.html"


def remember(app: Sphinx, env: BuildEnvironment, _docnames: list[str]) -> None:
    """Keep the files that are linked to between builds."""
    env.source_pages = getattr(env, "source_pages", set())


def skip(_app: Sphinx, _kind: str, name: str, *_: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator."""
    return True if REQUESTS.match(name) else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform, the resolver and the pages."""
    app.add_post_transform(LinkNames)
    app.connect("env-before-read-docs", remember)
    app.connect("missing-reference", resolve)
    app.connect("doctree-resolved", add_source_links)
    app.connect("html-collect-pages", source_pages)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": False}
