"""The command ``p3dc``: arguments, progress bars, tables.

Only the module of the command that is called is imported, so that the first label does not wait for the imports of
other commands. Nothing is imported here that takes long, so that an interrupt finds :func:`main` at work.
"""

import io
import os
import sys
import warnings
from importlib import import_module
from pathlib import Path

from p3dc.cli.signals import handling_signals

COMMANDS = {
    "photos": ("fit", "predict", "label", "explain", "add"),
    "serving": ("serve",),
    "extraction": ("extract",),
    "priors": ("priors",),
    "backbones": ("backbone",),
    "research": ("demo", "evaluate", "search"),
    "reproduction": ("reproduce",),
}


def main() -> None:
    """Run the command; report a user's mistake in one sentence, with status 2."""
    try:
        _prepare_streams()
        with handling_signals() as begin:
            _load(sys.argv[1:])
            begin()
            sys.exit(_run())
    except KeyboardInterrupt:  # in the moment before signals are handled
        sys.exit(130)


def _prepare_streams() -> None:
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the parent process
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # α and β on a terminal that shows only ASCII


def _run() -> int:
    """Run the command and return its status."""
    import typer

    from p3dc.cli.shared import app, tell
    from p3dc.errors import InputError

    warnings.showwarning = lambda message, *_: tell(str(message))
    try:
        return app(prog_name="p3dc", standalone_mode=False) or 0
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        sys.stdout = None  # its reader has gone
        return 1
    except typer.TyperException as error:
        sentence = " ".join(error.format_message().split())
    except InputError as error:
        sentence = str(error)
    except MemoryError:
        sentence = "the memory does not suffice. Give fewer or smaller files, or close other programs."
    except OSError as error:
        sentence = f"{error.filename}: {error.strerror}." if error.filename else str(error)
    if sentence:
        tell(sentence)
    return 2


def _load(arguments: list[str]) -> None:
    """Import the module of the command that is called; without a command, all of them."""
    called = arguments[0] if arguments else ""
    wanted = [module for module, names in COMMANDS.items() if called in names]
    for module in ["shared"] if called == "--version" else wanted or COMMANDS:
        import_module(f"p3dc.cli.{module}")
