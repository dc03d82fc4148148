"""Scores of many tasks at many (α, β), by NumPy or by torch."""
