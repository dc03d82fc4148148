"""A table as rows of cells, and which of its cells are the best."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Rows of cells. A row of one cell is a heading inside the table."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    name: str = ""  # of its LaTeX file; without one there is no LaTeX
    best: frozenset[tuple[int, int]] = frozenset()  # row and column of the cells in bold
    own: frozenset[int] = frozenset()  # rows of P3DC, which have a background
    prose: bool = False  # whether cells are sentences, which wrap


def best_cells(rows: Sequence[Sequence[str]], among: Iterable[int] | None = None) -> frozenset[tuple[int, int]]:
    """Find the largest numbers of each column, as printed, so that what looks equal is equally bold.

    ``among`` are the rows that are compared; all by default.
    """
    chosen = [i for i in (range(len(rows)) if among is None else among) if len(rows[i]) > 1]
    found = set()
    for j in range(1, max((len(rows[i]) for i in chosen), default=0)):
        numbers = {i: value for i in chosen if (value := _number(rows[i][j])) is not None}
        largest = max(numbers.values(), default=None)
        found |= {(i, j) for i, value in numbers.items() if value == largest}
    return frozenset(found)


def _number(cell: str) -> float | None:
    try:
        return float(cell.partition(" ")[0])
    except ValueError:
        return None
