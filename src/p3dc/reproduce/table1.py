"""The rows of Table 1: the methods of the registry, and P3DC at fixed and at selected weights."""

from p3dc.baselines.registry import OTHERS, TABLE_1

FIXED_POINTS = {"p3dc-0-0": (0.0, 0.0), "p3dc-1-0": (1.0, 0.0), "p3dc-0-1": (0.0, 1.0), "p3dc-third": (1 / 3, 1 / 3)}
P3DC_TITLES = {
    "p3dc-0-0": "P3DC-Shot (α = 0, β = 0)",
    "p3dc-1-0": "P3DC-Shot (α = 1, β = 0)",
    "p3dc-0-1": "P3DC-Shot (α = 0, β = 1)",
    "p3dc-third": "P3DC-Shot (α = β = 1/3)",
    "p3dc": "P3DC-Shot (selected α, β)",
    "p3dc-unit": "P3DC-Shot, unit query (selected α, β)",
    "p3dc-auto": "P3DC-Shot, adaptive (auto)",
}
TITLES = {key: method.title for key, method in TABLE_1.items()} | P3DC_TITLES
"""The names of the rows."""

TABLE_3_METHODS = ("restorenet", "l2n", "cl2n")
"""The compared methods of Table 3."""

P3DC = "P3DC-Shot"


def rows() -> list[tuple[str, str]]:
    """List the group and the key of each row, from the top of the table to the bottom."""
    families = [(method.family, key) for key, method in TABLE_1.items()]
    ours = [(P3DC, key) for key in P3DC_TITLES]
    return sorted([*families, *ours], key=lambda row: (row[0] == OTHERS, row[0] == P3DC))
