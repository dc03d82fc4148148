"""Extraction, priors and evaluation on a Ray cluster: the processes of one machine or of many."""
