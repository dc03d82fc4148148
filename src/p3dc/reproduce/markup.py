"""The blocks of a report, and their rendering as Markdown and as one self-contained HTML page."""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from p3dc.reproduce.latex import to_latex
from p3dc.reproduce.tabular import Table


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the title of the page."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Contents:
    """The place for the table of contents."""


@dataclass(frozen=True)
class Paragraph:
    """Some sentences."""

    text: str


@dataclass(frozen=True)
class Code:
    """A command."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    items: Sequence[str]


@dataclass(frozen=True)
class Picture:
    """A PNG file in the folder of the report."""

    path: Path
    caption: str


Block = Heading | Contents | Paragraph | Code | Bullets | Table | Picture

STYLE = """
:root { color-scheme: light dark; --ink: #1d1d1f; --soft: #62626a; --line: #d9d9de; --page: #fff; --own: #f1effb; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8ea; --soft: #a3a3ab; --line: #3a3a40; --page: #18181b; --own: #292639; }
}
* { box-sizing: border-box; }
body { font: 1rem/1.55 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 0 auto;
  max-width: 62rem; padding: 2rem 1.25rem 5rem; overflow-wrap: break-word; }
h1, h2, h3 { line-height: 1.2; margin: 2.2em 0 0.6em; } h1 { margin-top: 0.5em; }
h2 { border-top: 1px solid var(--line); padding-top: 1.2em; }
a { color: inherit; text-decoration-color: var(--soft); text-underline-offset: 0.15em; }
p, li { max-width: 44rem; }
nav ul { list-style: none; margin: 0; padding: 0; } nav ul ul { padding-left: 1.25rem; font-size: 0.93rem; }
pre { overflow-x: auto; padding: 0.7rem 0.9rem; border: 1px solid var(--line); border-radius: 6px; font-size: 0.85rem; }
pre.command { white-space: pre-wrap; }
.wide { overflow-x: auto; margin: 0.6rem 0 0.4rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.93rem; }
th, td { padding: 0.28rem 0.9rem 0.28rem 0; text-align: right; white-space: nowrap; vertical-align: baseline; }
th:first-child, td:first-child { text-align: left; padding-left: 0.4rem; }
thead th { border-bottom: 2px solid var(--line); vertical-align: bottom; white-space: normal; min-width: 5.5rem; }
tbody th { font-weight: 600; text-align: left; padding-top: 0.8rem; color: var(--soft); }
tbody tr.own { background: var(--own); }
tbody td { border-top: 1px solid var(--line); }
table.prose td, table.prose th { text-align: left; white-space: normal; }
table.prose td:first-child { min-width: 13rem; } table.prose td:nth-child(2) { white-space: nowrap; }
.keep { white-space: nowrap; }
.note { color: var(--soft); font-size: 0.88rem; max-width: 52rem; margin: 0 0 0.6rem; }
details { margin: 0 0 1.4rem; font-size: 0.88rem; } summary { cursor: pointer; color: var(--soft); }
figure { margin: 1.5rem 0; } figure img { max-width: 100%; background: #fff; border-radius: 6px; }
figcaption { color: var(--soft); font-size: 0.93rem; max-width: 52rem; }
@media (max-width: 40rem) { body { padding: 1rem 0.9rem 3rem; } table { font-size: 0.85rem; }
  td:first-child { white-space: normal; min-width: 8rem; } }
@media print {
  :root { --ink: #000; --soft: #444; --line: #bbb; --page: #fff; --own: #eee; }
  @page { margin: 14mm; }
  html { font-size: 9.5pt; } body { padding: 0; max-width: none; }
  p, li, .note, figcaption { max-width: none; }
  .wide { overflow: visible; } table { font-size: 7.5pt; } td, th { padding-right: 0.5rem; }
  thead th { min-width: 0; } tr, figure { break-inside: avoid; } h1, h2, h3 { break-after: avoid; }
  table:not(:has(tbody tr:nth-child(12))) { break-inside: avoid; }
  thead { display: table-header-group; } figure img { max-height: 110mm; } details { display: none; }
  tr.own { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""


def to_markdown(blocks: Sequence[Block], folder: Path) -> str:
    """Render blocks as Markdown; pictures are linked from ``folder``."""
    anchors = _anchors(blocks)
    return "\n\n".join(_markdown(block, folder, anchors) for block in blocks) + "\n"


def to_html(blocks: Sequence[Block], title: str) -> str:
    """Render blocks as one page with the pictures inside it."""
    anchors = _anchors(blocks)
    places = iter(anchors)
    body = "\n".join(_html(block, next(places)[1] if isinstance(block, Heading) else "", anchors) for block in blocks)
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


Anchors = Sequence[tuple[Heading, str]]


def _anchors(blocks: Sequence[Block]) -> Anchors:
    """Name the place of each heading, as Markdown readers do: lower case, and a number where a name repeats."""
    found: list[tuple[Heading, str]] = []
    seen: dict[str, int] = {}
    for block in blocks:
        if isinstance(block, Heading):
            slug = re.sub(r"[^\w\- ]", "", block.text.lower()).replace(" ", "-")
            repeated = seen.get(slug, 0)
            seen[slug] = repeated + 1
            found.append((block, f"{slug}-{repeated}" if repeated else slug))
    return found


def _markdown(block: Block, folder: Path, anchors: Anchors) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Contents():
            shown = [(heading, anchor) for heading, anchor in anchors if heading.level > 1]
            return "\n".join(f"{'  ' * (heading.level - 2)}- [{heading.text}](#{anchor})" for heading, anchor in shown)
        case Paragraph(text):
            return text
        case Code(text):
            return f"```sh\n{text}\n```"
        case Bullets(items):
            return "\n".join(f"- {item}" for item in items)
        case Picture(path, caption):
            return f"![{caption}]({path.relative_to(folder).as_posix()})\n\n*{caption}*"
        case Table():
            lines = [_line(block.header), _line(["---"] * len(block.header))]
            for i, row in enumerate(block.rows):
                cells = [f"*{row[0]}*", *[""] * (len(block.header) - 1)] if len(row) == 1 else list(row)
                cells[0] = f"▸ {cells[0]}" if i in block.own else cells[0]
                for j, cell in enumerate(cells):
                    if (i, j) in block.best:
                        cells[j] = f"**{cell}**"
                lines.append(_line(cells))
            return "\n".join(lines) + (f"\n\n{block.caption}" if block.caption else "")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _html(block: Block, anchor: str, anchors: Anchors) -> str:
    match block:
        case Heading(text, level):
            return f'<h{level} id="{escape(anchor)}">{_text(text)}</h{level}>'
        case Contents():
            return _html_contents([(heading, place) for heading, place in anchors if heading.level > 1])
        case Paragraph(text):
            return f"<p>{_text(text)}</p>"
        case Code(text):
            return f'<pre class="command">{escape(text)}</pre>'
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{_text(item)}</li>" for item in items) + "</ul>"
        case Picture(path, caption):
            content = base64.b64encode(path.read_bytes()).decode()
            image = f'<img alt="{escape(caption)}" src="data:image/png;base64,{content}">'
            return f"<figure>{image}<figcaption>{_text(caption)}</figcaption></figure>"
        case Table():
            return _html_table(block)


def _text(text: str) -> str:
    """Escape text, and keep words like 5-shot on one line."""
    kept = re.sub(r"\b\d+-(?:shot|way)\b", r'<span class="keep">\g<0></span>', escape(text))
    return re.sub(r"`([^`]+)`", r'<code class="keep">\1</code>', kept)


def _html_contents(anchors: Anchors) -> str:
    """Nest the headings of level 3 below those of level 2."""
    parts, inside = [], False
    for heading, anchor in anchors:
        link = f'<a href="#{escape(anchor)}">{_text(heading.text)}</a>'
        if heading.level > 2:
            parts.append(f"<li>{link}</li>" if inside else f"<ul><li>{link}</li>")
            inside = True
        else:
            parts.append(("</ul></li>" if inside else "</li>" if parts else "") + f"<li>{link}")
            inside = False
    return f'<nav aria-label="Contents"><ul>{"".join(parts)}{"</ul>" if inside else ""}</li></ul></nav>'


def _html_table(table: Table) -> str:
    head = "".join(f'<th scope="col">{_text(cell)}</th>' for cell in table.header)
    body = []
    for i, row in enumerate(table.rows):
        if len(row) == 1:
            cells = f'<th colspan="{len(table.header)}" scope="rowgroup">{_text(row[0])}</th>'
        else:
            texts = [f"<strong>{_text(c)}</strong>" if (i, j) in table.best else _text(c) for j, c in enumerate(row)]
            cells = "".join(f"<td>{text}</td>" for text in texts)
        body.append(f'<tr class="own">{cells}</tr>' if i in table.own else f"<tr>{cells}</tr>")
    kind = ' class="prose"' if table.prose else ""
    lines = [
        f'<div class="wide"><table{kind}><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
    ]
    if table.caption:
        lines.append(f'<p class="note">{_text(table.caption)}</p>')
    if table.name:
        lines.append(f"<details><summary>LaTeX</summary><pre>{escape(to_latex(table))}</pre></details>")
    return "\n".join(lines)
