"""The same work on the processes of a Ray: one machine or many."""
