"""The methods that P3DC-Shot is compared with, each with the contract of the classifier."""

from p3dc.baselines.nearest import CL2N, L2N, NN, SimpleShot

__all__ = ["CL2N", "L2N", "NN", "SimpleShot"]
