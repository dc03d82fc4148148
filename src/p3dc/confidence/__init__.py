"""Probabilities, unknowns, and how far to trust both."""
