"""File formats: writes are atomic, and reading never runs code."""
