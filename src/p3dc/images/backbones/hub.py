"""Fetch networks from the Hugging Face Hub into its cache. This module needs the hub extra.

Only settings, the network and its weights are fetched, all from one commit. What is in the cache is not fetched again,
and needs no connection. A file appears in the cache when it is complete.
"""

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from p3dc.errors import InputError
from p3dc.images.backbones.backbone import first_line
from p3dc.images.backbones.network_folder import CONFIG, PROCESSOR, choose_network
from p3dc.images.backbones.onnx_graph import external_files

PREFIX = "hf:"


def fetch_network(place: str, variant: str = "fp32") -> Path:
    """Return the folder of a network on the Hub, in the layout that ``network_folder`` reads.

    Parameters
    ----------
    place : str
        ``hf:OWNER/NAME`` or ``hf:OWNER/NAME@REVISION``.
    variant : str
        As in :func:`~p3dc.images.backbones.network_folder.load_folder`.

    Returns
    -------
    Path
        In the Hub's cache.
    """
    matched = re.fullmatch(rf"{PREFIX}([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", place)
    if matched is None:
        raise InputError(f"{place!r:.100} is not an address on the Hub. Write hf:OWNER/NAME or hf:OWNER/NAME@REVISION.")
    repository, revision = matched.groups()
    try:
        import huggingface_hub as hub
    except ImportError:
        raise InputError(f"to fetch {place}, install the hub extra: pip install 'p3dc-shot[hub]'.") from None
    from huggingface_hub import utils

    utils.logging.set_verbosity(logging.CRITICAL)  # what goes wrong is said once, below
    if not sys.stderr.isatty():
        utils.disable_progress_bars()
    with _one_sentence(place):
        folder = Path(hub.hf_hub_download(repository, CONFIG, revision=revision)).parent
        commit = folder.name
        files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        try:
            network = choose_network(files, variant, place)
        except InputError:  # not in the cache
            files = [file.rfilename for file in hub.HfApi().model_info(repository, revision=commit).siblings or ()]
            network = choose_network(files, variant, place)
            for name in (PROCESSOR, network):  # the network last, so that whoever has it has all settings
                if name in files:
                    hub.hf_hub_download(repository, name, revision=commit)
        for name in external_files((folder / network).read_bytes()):
            beside = PurePosixPath(network).parent / name
            hub.hf_hub_download(repository, beside.as_posix(), revision=commit)
    return folder


@contextmanager
def _one_sentence(place: str) -> Iterator[None]:
    """Turn the errors of the Hub's client into one sentence each."""
    from huggingface_hub import errors

    try:
        yield
    except InputError:
        raise
    except errors.GatedRepoError:
        raise InputError(
            f"{place} is gated. Accept its terms on its page, then give a token: hf auth login, or HF_TOKEN."
        ) from None
    except errors.RepositoryNotFoundError:
        raise InputError(f"{place} is not on the Hub, or it is private. Check its name, or give a token.") from None
    except errors.RevisionNotFoundError:
        raise InputError(f"{place} does not have that revision. Check what stands after the @.") from None
    except errors.LocalEntryNotFoundError:
        raise InputError(
            f"{place} is not in the cache of the Hub, and the Hub cannot be reached. Check the connection, or give a "
            "folder with its files."
        ) from None
    except errors.EntryNotFoundError as error:
        raise InputError(f"{place} lacks a file that it needs ({first_line(error)}). Give another network.") from None
    except (errors.HFValidationError, ValueError) as error:
        raise InputError(f"{place} is not an address on the Hub ({first_line(error)}). Check its name.") from None
    except Exception as error:  # connections break in many ways, each with a class of its own
        raise InputError(f"{place} was not fetched whole ({first_line(error)}). Try again.") from None
