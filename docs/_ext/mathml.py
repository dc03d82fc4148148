"""Formulas as MathML, which browsers draw without a script: ``docutils`` translates LaTeX."""

from typing import Any

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx


def _inline(writer: Any, node: Any) -> None:
    writer.body.append(tex2mathml(node.astext()))
    raise SkipNode


def _block(writer: Any, node: Any) -> None:
    formula = tex2mathml(node.astext(), as_block=True)
    writer.body.append(f'<div class="math">{formula}</div>')
    raise SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer and choose it."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True}
