"""The blocks of a report, and their rendering as Markdown and as one self-contained HTML page."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the title of the page."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Some sentences."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Rows of cells. A row of one cell is a heading inside the table; ``strong`` rows stand out."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    strong: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Picture:
    """A PNG file in the folder of the report."""

    path: Path
    caption: str


Block = Heading | Paragraph | Bullets | Table | Picture

STYLE = """
:root { color-scheme: light dark; --ink: #1d1d1f; --soft: #6b6b70; --line: #d9d9de; --page: #fff; --strong: #f3f1fb; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8ea; --soft: #9a9aa2; --line: #3a3a40; --page: #18181b; --strong: #2a2738; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 0 auto;
  max-width: 62rem; padding: 2rem 1.25rem 5rem; }
h1, h2, h3 { line-height: 1.2; margin: 2.4em 0 0.6em; } h1 { margin-top: 0.5em; }
p, li { max-width: 44rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.93rem; margin: 0.6rem 0 1.4rem; }
caption { caption-side: bottom; text-align: left; color: var(--soft); padding-top: 0.5rem; }
th, td { padding: 0.28rem 0.9rem 0.28rem 0; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0.4rem; }
thead th { border-bottom: 2px solid var(--line); vertical-align: bottom; white-space: normal; min-width: 5.5rem; }
tbody th { font-weight: 600; text-align: left; padding-top: 0.8rem; color: var(--soft); }
tbody tr.strong { background: var(--strong); font-weight: 600; }
tbody td { border-top: 1px solid var(--line); }
figure { margin: 1.5rem 0; } figure img { max-width: 100%; background: #fff; border-radius: 6px; }
figcaption { color: var(--soft); max-width: 44rem; }
"""


def to_markdown(blocks: Sequence[Block], folder: Path) -> str:
    """Render blocks as Markdown; pictures are linked from ``folder``."""
    return "\n\n".join(_markdown(block, folder) for block in blocks) + "\n"


def to_html(blocks: Sequence[Block], title: str) -> str:
    """Render blocks as one page with the pictures inside it."""
    body = "\n".join(_html(block) for block in blocks)
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _markdown(block: Block, folder: Path) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Paragraph(text):
            return text
        case Bullets(items):
            return "\n".join(f"- {item}" for item in items)
        case Picture(path, caption):
            return f"![{caption}]({path.relative_to(folder).as_posix()})\n\n*{caption}*"
        case Table(header, rows, caption, strong):
            lines = [_line(header), _line(["---"] * len(header))]
            for i, row in enumerate(rows):
                cells = [f"*{row[0]}*", *[""] * (len(header) - 1)] if len(row) == 1 else row
                lines.append(_line([f"**{cell}**" if i in strong and cell else cell for cell in cells]))
            return "\n".join(lines) + (f"\n\n{caption}" if caption else "")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"
        case Picture(path, caption):
            content = base64.b64encode(path.read_bytes()).decode()
            image = f'<img alt="{escape(caption)}" src="data:image/png;base64,{content}">'
            return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"
        case Table(header, rows, caption, strong):
            head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
            body = []
            for i, row in enumerate(rows):
                if len(row) == 1:
                    cells = f'<th colspan="{len(header)}" scope="rowgroup">{escape(row[0])}</th>'
                else:
                    cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
                body.append(f'<tr class="strong">{cells}</tr>' if i in strong else f"<tr>{cells}</tr>")
            note = f"<caption>{escape(caption)}</caption>" if caption else ""
            table = f"<table>{note}<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
            return f'<div class="wide">{table}</div>'
