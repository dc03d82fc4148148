"""Reading and writing files: atomic, and never code."""
