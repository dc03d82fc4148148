"""Learning from unlabelled rows: which of them belong together, and what they say about the classes of a task."""
