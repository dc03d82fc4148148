"""Where each compared method was published."""

from collections.abc import Iterable

from p3dc.baselines.registry import METHODS

P3DC = (
    "P3DC-Shot: S. Wang, R. Ma, T. Wu and Y. Cao. P3DC-Shot: Prior-driven discrete data calibration for "
    "nearest-neighbor "
    "few-shot classification. arXiv:2301.00740, 2023."
)
REFERENCES = {
    "matchingnet": "O. Vinyals et al. Matching networks for one shot learning. NIPS 2016.",
    "protonet": "J. Snell, K. Swersky and R. Zemel. Prototypical networks for few-shot learning. NIPS 2017.",
    "relationnet": "F. Sung et al. Learning to compare: relation network for few-shot learning. CVPR 2018.",
    "anil": (
        "C. Finn, P. Abbeel and S. Levine. Model-agnostic meta-learning for fast adaptation of deep networks. ICML "
        "2017. "
        "Head only: A. Raghu et al. Rapid learning or feature reuse? Towards understanding the effectiveness of MAML. "
        "ICLR 2020."
    ),
    "leo": "A. A. Rusu et al. Meta-learning with latent embedding optimization. ICLR 2019.",
    "metaoptnet-svm": "K. Lee et al. Meta-learning with differentiable convex optimization. CVPR 2019.",
    "metaoptnet-ridge": "K. Lee et al. Meta-learning with differentiable convex optimization. CVPR 2019.",
    "baseline++": "W.-Y. Chen et al. A closer look at few-shot classification. ICLR 2019.",
    "negative-cosine": "B. Liu et al. Negative margin matters: understanding margin in few-shot classification. "
    "ECCV 2020.",
    "s2m2": "P. Mangla et al. Charting the right manifold: manifold mixup for few-shot learning. WACV 2020.",
    "simpleshot": (
        "Y. Wang et al. SimpleShot: revisiting nearest-neighbor classification for few-shot learning. "
        "arXiv:1911.04623, 2019."
    ),
    "deepvoro": "C. Ma et al. Few-shot learning via Dirichlet tessellation ensemble. ICLR 2022.",
    "deepvoro++": "C. Ma et al. Few-shot learning via Dirichlet tessellation ensemble. ICLR 2022.",
    "restorenet": "W. Xue and W. Wang. One-shot image classification by learning to restore prototypes. AAAI 2020.",
    "dc": "S. Yang, L. Liu and M. Xu. Free lunch for few-shot learning: distribution calibration. ICLR 2021.",
    "mcl-katz": (
        "Y. Liu et al. Learning to affiliate: mutual centralized learning for few-shot classification. CVPR 2022."
    ),
    "tcpr": (
        "J. Xu et al. Alleviating the sample selection bias in few-shot learning by "
        "removing projection to the centroid. NeurIPS 2022."
    ),
}


def references(keys: Iterable[str]) -> list[str]:
    """List the publications of the methods that have one, each behind the name of its method."""
    published = [METHODS[key] for key in keys if METHODS[key].reference]
    return [P3DC, *(f"{method.name}: {REFERENCES[method.key]}" for method in published)]
