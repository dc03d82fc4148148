"""The command ``p3dc``: arguments, progress bars, tables.

Only the module of the command that is called is imported, so that the first label does not wait for the imports of
other commands.
"""

import io
import os
import sys
import warnings
from importlib import import_module
from pathlib import Path

import typer

from p3dc.cli.shared import app
from p3dc.errors import InputError

COMMANDS = {
    "research": ("demo", "evaluate", "search", "reproduce"),
    "priors": ("priors",),
    "photos": ("extract", "fit", "predict", "label", "explain", "add"),
    "backbones": ("backbone",),
    "serving": ("serve",),
}


def main() -> None:
    """Run the command; report a user's mistake in one sentence, with status 2."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the parent process
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # α and β on a terminal that shows only ASCII
    warnings.showwarning = lambda message, *_: typer.echo(f"p3dc: {message}", err=True)
    try:
        _load(sys.argv[1:])
        sys.exit(app(standalone_mode=False) or 0)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        sys.stdout = None  # its reader has gone
        sys.exit(1)
    except typer.TyperException as error:
        sentence = error.format_message()
    except InputError as error:
        sentence = str(error)
    except OSError as error:
        sentence = f"{error.filename}: {error.strerror}." if error.filename else str(error)
    if sentence:
        typer.echo(f"p3dc: {sentence}", err=True)
    sys.exit(2)


def _load(arguments: list[str]) -> None:
    """Import the module of the command that is called; without a command, all of them."""
    called = arguments[0] if arguments else ""
    if called == "--version":
        return
    wanted = [module for module, names in COMMANDS.items() if called in names]
    for module in wanted or COMMANDS:
        import_module(f"p3dc.cli.{module}")
