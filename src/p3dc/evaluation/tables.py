"""Results as data frames, as HTML for notebooks and as plain values for JSON."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from p3dc.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame


def data_frame(columns: Mapping[str, Any]) -> "DataFrame":
    """Make a data frame of columns."""
    try:
        import pandas as pd
    except ImportError:
        raise InputError("to_pandas needs pandas, which is not installed. Install it: pip install pandas") from None
    return pd.DataFrame(dict(columns))


def plain(content: Mapping[str, Any]) -> dict[str, Any]:
    """Turn arrays and NumPy's numbers into Python's, and NaN into None, so that JSON can hold them."""
    return {str(key): _plain(value) for key, value in content.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return plain(value)
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def html_table(rows: Sequence[Mapping[str, str]], notes: Sequence[str] = ()) -> str:
    """Write rows of cells as an HTML table, with notes below it."""
    headings = list(dict.fromkeys(heading for row in rows for heading in row))
    cells = [[f"<th>{escape(heading)}</th>" for heading in headings]]
    cells += [[f"<td>{escape(row.get(heading, ''))}</td>" for heading in headings] for row in rows]
    lines = "".join(f"<tr>{''.join(line)}</tr>" for line in cells)
    return f"<table>{lines}</table>" + "".join(f"<p>{escape(note)}</p>" for note in notes)
