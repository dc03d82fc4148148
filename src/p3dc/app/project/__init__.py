"""A project: its state, its history and the file that keeps it. No HTTP."""
