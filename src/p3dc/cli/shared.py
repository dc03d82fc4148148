"""What the commands share: the program, its options, and what they print."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import p3dc
from p3dc.cli.outputs import Use, epilog
from p3dc.errors import InputError

ENGINES = ("local", "ray")

PHOTOS, FEATURES, EXPERIMENTS = "Label photos", "Features, networks and base classes", "Experiments"
"""Headings of commands."""

CLASSES, NETWORK, TASKS, METHOD = "Classes", "Network", "Tasks", "Method"
COMPUTING, OUTPUT = "Computing", "Output"
"""Headings of options."""

Engine = Annotated[
    str,
    typer.Option(help="local, or ray: processes on a Ray cluster or on this machine.", rich_help_panel=COMPUTING),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="host:port of a running Ray cluster; by default one is started on this machine.", rich_help_panel=COMPUTING
    ),
]
BackboneOption = Annotated[
    str,
    typer.Option(
        help="efficientnet-lite0, -lite0-int8, -lite1, -lite2, hf:OWNER/NAME on the Hub, a folder, or .onnx.",
        rich_help_panel=NETWORK,
    ),
    Use.READS,
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        help="Where the network runs: cpu (the default), cuda, openvino, coreml or directml.",
        rich_help_panel=NETWORK,
    ),
]
ViewsOption = Annotated[
    int,
    typer.Option(help="Views of each photo to average, from 1 to 7; N take N times as long.", rich_help_panel=NETWORK),
]
PRIORS_HELP = "Your own priors as .safetensors, backbone for the classes it was trained on, or none."
PriorsOption = Annotated[str, typer.Option(help=PRIORS_HELP, rich_help_panel=CLASSES), Use.READS]
REJECT_HELP = "Share of photos of other classes to label unknown; 0 for none."
RejectOption = Annotated[float, typer.Option(help=REJECT_HELP, rich_help_panel=CLASSES)]
TaskCount = Annotated[int, typer.Option("--tasks", help="How many tasks to draw.", rich_help_panel=TASKS)]
Seed = Annotated[int, typer.Option(help="Seed of the random sequence of tasks.", rich_help_panel=TASKS)]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", help="Write the results to this file.", rich_help_panel=OUTPUT),
    Use.WRITES_FILE,
]

LONGEST = 600
"""Characters of a message: some hundred, whatever a damaged file has for a name."""

STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters but the end of a line, and those that turn the direction of text."""

app = typer.Typer(
    help="Few-shot classification without training.",
    epilog=epilog("p3dc fit photos/ --out model.safetensors\np3dc predict model.safetensors new/", "README.md"),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"p3dc {p3dc.__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Few-shot classification without training."""


@contextmanager
def engine_of(engine: str, address: str | None) -> Iterator[bool]:
    """Connect to Ray if the work goes there; yield whether it does."""
    if engine not in ENGINES:
        raise InputError(f"there is no engine {engine!r}. Choose from {', '.join(ENGINES)}.")
    if engine == "local":
        if address is not None:
            raise InputError("--address is for Ray. Give --engine ray as well, or leave it out.")
        yield False
        return
    from p3dc.cluster.connection import connected

    with connected(address):
        yield True


class Screen(Console):
    """A console that shows what would steer the terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print tables as they are, and text as :func:`printable` has it."""
        super().print(*(printable(one) if isinstance(one, str) else one for one in objects), **options)


def screen(*, errors: bool = False) -> Console:
    """Return a console for plain text, whose lines are not wrapped; in a pipe, neither are tables."""
    width = None if (sys.stderr if errors else sys.stdout).isatty() else 500
    return Screen(highlight=False, markup=False, emoji=False, soft_wrap=True, width=width, stderr=errors)


def printable(text: str) -> str:
    r"""Escape characters that steer a terminal or turn the direction of text; names in files may have them.

    Examples
    --------
    >>> from p3dc.cli.shared import printable
    >>> print(printable("wren\x1b[2J.jpg"))
    wren\x1b[2J.jpg
    """
    return STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def tell(sentence: str) -> None:
    """Print one sentence for the user on standard error; the middle of a long one is left out."""
    if len(sentence) > LONGEST:
        sentence = f"{sentence[: LONGEST // 2]} … {sentence[-LONGEST // 2 :]}"
    typer.echo(printable(f"p3dc: {sentence}").replace("\n", "\\n"), err=True)
