"""Accuracy over many tasks: evaluate, compare, search."""
