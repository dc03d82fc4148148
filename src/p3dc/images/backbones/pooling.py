"""From the outputs of a network to one row of features for each image."""

from collections.abc import Sequence
from math import isqrt

from p3dc._arrays import Floats
from p3dc.errors import InputError

EMBEDDINGS = ("image_embeds", "pooler_output")
"""Outputs that are a row of features, the best first."""

TOKENS = "last_hidden_state"
LOGITS = "logits"
POOLINGS = ("cls", "mean", *EMBEDDINGS)


def choose_output(names: Sequence[str], pooling: str | None) -> str:
    """Choose the output that features come from.

    Without ``pooling`` it is the image embedding where the network has one, or else its tokens or its map. "cls" and
    "mean" ask for tokens or a map, any other word for the output of that name.

    Examples
    --------
    >>> from p3dc.images.backbones.pooling import choose_output
    >>> choose_output(["last_hidden_state", "pooler_output"], None)
    'pooler_output'
    >>> choose_output(["last_hidden_state", "pooler_output"], "cls")
    'last_hidden_state'
    """
    wanted: tuple[str, ...] = (*EMBEDDINGS, TOKENS, LOGITS)
    if pooling is not None:
        wanted = (TOKENS,) if pooling in ("cls", "mean") else (pooling,)
    found = next((name for name in wanted if name in names), None)
    if found is not None:
        return found
    if len(names) == 1 and pooling not in EMBEDDINGS:
        return names[0]
    raise InputError(f"it has the outputs {', '.join(names)}, and none is {' or '.join(wanted)}.")


def pool(found: Floats, pooling: str | None, n_patches: int | None = None) -> Floats:
    """Turn an output into rows, (n, …) -> (n, D).

    A map, (n, D, height, width), is averaged. Of tokens, (n, T, D), the class token is taken where there is one, or
    else the mean of the patches; "cls" and "mean" choose. The class token comes first, and after it any registers.

    Parameters
    ----------
    found : array
    pooling : {"cls", "mean"} or None
    n_patches : int, optional
        How many of the tokens are patches. By default all, or the largest square number of them.
    """
    if found.ndim == 4:
        if pooling == "cls":
            raise InputError("it gives a map, which has no class token. Leave the pooling out.")
        averaged: Floats = found.mean(axis=(2, 3))
        return averaged
    if found.ndim != 3:
        return found
    n_tokens = found.shape[1]
    if n_patches is None or n_patches > n_tokens:
        n_patches = isqrt(n_tokens) ** 2
    n_before = n_tokens - n_patches
    if pooling == "cls" and not n_before:
        raise InputError(f"its {n_tokens} tokens are all patches: there is no class token. Leave the pooling out.")
    return found[:, 0] if n_before and pooling != "mean" else found[:, n_before:].mean(axis=1)
