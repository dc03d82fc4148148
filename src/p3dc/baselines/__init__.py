"""The methods that P3DC-Shot is compared with; :mod:`p3dc.baselines.registry` lists them."""

from p3dc.baselines.anil import ANIL
from p3dc.baselines.dc import DC, DCNearest
from p3dc.baselines.deepvoro import DeepVoro, DeepVoroPP
from p3dc.baselines.gda import GDA
from p3dc.baselines.leo import LEO
from p3dc.baselines.logistic import LogisticRegression
from p3dc.baselines.metaoptnet import MetaOptNetRidge, MetaOptNetSVM
from p3dc.baselines.nearest import CL2N, L2N, NN, SimpleShot
from p3dc.baselines.prototypical import MatchingNet, ProtoNet
from p3dc.baselines.relationnet import RelationNet
from p3dc.baselines.restorenet import RestoreNet
from p3dc.baselines.sgd_heads import BaselinePP, NegativeCosine, S2M2Head
from p3dc.baselines.tcpr import TCPR

__all__ = [
    "ANIL",
    "CL2N",
    "DC",
    "GDA",
    "L2N",
    "LEO",
    "NN",
    "TCPR",
    "BaselinePP",
    "DCNearest",
    "DeepVoro",
    "DeepVoroPP",
    "LogisticRegression",
    "MatchingNet",
    "MetaOptNetRidge",
    "MetaOptNetSVM",
    "NegativeCosine",
    "ProtoNet",
    "RelationNet",
    "RestoreNet",
    "S2M2Head",
    "SimpleShot",
]
