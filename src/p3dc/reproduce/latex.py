"""Tables as LaTeX, for a document that uses booktabs."""

from p3dc.reproduce.tabular import Table

SPECIAL = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "λ": r"$\lambda$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "◇": r"$\diamond$",
    "−": r"$-$",
    "—": "---",
    "…": r"\dots{}",
    "<": r"$<$",
    ">": r"$>$",
}


def to_latex(table: Table) -> str:
    """Render a table as a LaTeX float: the best of each column is bold, the rows of P3DC are in italics."""
    left, rest = ("l", "l") if table.prose else ("l", "r")
    width = len(table.header)
    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{{left}{rest * (width - 1)}}}", r"\toprule"]
    lines += [_line([_escape(cell) for cell in table.header]), r"\midrule"]
    for i, row in enumerate(table.rows):
        if len(row) == 1:
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{\textbf{{{_escape(row[0])}}}}} \\")
            continue
        cells = [_escape(cell) for cell in row]
        cells = [rf"\textbf{{{cell}}}" if (i, j) in table.best else cell for j, cell in enumerate(cells)]
        lines.append(_line([rf"\textit{{{cells[0]}}}", *cells[1:]] if i in table.own else cells))
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\caption{{{_escape(table.caption)}}}"] if table.caption else []
    return "\n".join([*lines, rf"\label{{tab:{table.name}}}", r"\end{table}", ""])


def _line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _escape(text: str) -> str:
    return "".join(SPECIAL.get(character, character) for character in text)
