"""The methods that P3DC-Shot is compared with, each with the contract of the classifier."""

from p3dc.baselines.dc import DC, DCNearest
from p3dc.baselines.deepvoro import DeepVoro, DeepVoroPP
from p3dc.baselines.gda import GDA
from p3dc.baselines.logistic import LogisticRegression
from p3dc.baselines.metaoptnet import MetaOptNetRidge, MetaOptNetSVM
from p3dc.baselines.nearest import CL2N, L2N, NN, SimpleShot
from p3dc.baselines.prototypical import MatchingNet, ProtoNet

__all__ = [
    "CL2N",
    "DC",
    "GDA",
    "L2N",
    "NN",
    "DCNearest",
    "DeepVoro",
    "DeepVoroPP",
    "LogisticRegression",
    "MatchingNet",
    "MetaOptNetRidge",
    "MetaOptNetSVM",
    "ProtoNet",
    "SimpleShot",
]
