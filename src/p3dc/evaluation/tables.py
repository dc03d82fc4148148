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


def plain(value: Any) -> Any:
    """Turn arrays and NumPy's numbers into Python's, and NaN into None, so that JSON can hold them."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def html_table(rows: Sequence[Mapping[str, str]], notes: Sequence[str] = ()) -> str:
    """Write rows of cells as an HTML table, with notes below it."""
    headings = list(dict.fromkeys(heading for row in rows for heading in row))
    lines = ["<tr>" + "".join(f"<th>{escape(heading)}</th>" for heading in headings) + "</tr>"]
    for row in rows:
        lines.append("<tr>" + "".join(f"<td>{escape(row.get(heading, ''))}</td>" for heading in headings) + "</tr>")
    caption = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<table>{''.join(lines)}</table>{caption}"
