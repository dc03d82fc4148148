"""What a campaign found, as tables: tests of tests/hostile record counts, and the end of the run adds them up."""

from collections import Counter

import pytest


@pytest.fixture
def count(record_property):
    """Count what came of an attack: count(table, row, column, number)."""
    return lambda *cell: record_property("count", cell)


def pytest_collection_modifyitems(items):
    """Let tests of the campaign take as long as they need: each attack has its own limit."""
    for item in items:
        if item.get_closest_marker("campaign"):
            item.add_marker(pytest.mark.timeout(0))


def pytest_terminal_summary(terminalreporter):
    tables = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, cell in getattr(report, "user_properties", ()):
                if name == "count" and report.when == "call":
                    table, row, column, number = cell
                    tables.setdefault(table, {}).setdefault(row, Counter())[column] += number
    for table, rows in tables.items():
        terminalreporter.section(table)
        for line in lines_of(table, rows):
            terminalreporter.write_line(line)


def lines_of(table, rows):
    """A table in Markdown: a row for each attack, a column for each outcome."""
    columns = sorted({column for counts in rows.values() for column in counts})
    yield f"| {table} | attacks | {' | '.join(columns)} |"
    yield f"|---|{'--:|' * (1 + len(columns))}"
    for row, counts in rows.items():
        yield f"| {row} | {counts.total():,} | {' | '.join(f'{counts[column]:,}' for column in columns)} |"
