"""What the commands share: the program, options and checks of outputs."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import p3dc
from p3dc.errors import InputError
from p3dc.io.atomic import FIGURE_FORMATS, check_folder

ENGINES = ("local", "ray")

Engine = Annotated[str, typer.Option(help="local, or ray: processes on a Ray cluster or on this machine.")]
Address = Annotated[
    str | None, typer.Option(help="host:port of a running Ray cluster; by default one is started on this machine.")
]
BackboneOption = Annotated[
    str,
    typer.Option(help="efficientnet-lite0, -lite0-int8, -lite1, -lite2, hf:OWNER/NAME on the Hub, a folder, or .onnx."),
]
DeviceOption = Annotated[
    str | None, typer.Option(help="Where the network runs: cpu (the default), cuda, openvino, coreml or directml.")
]
PriorsOption = Annotated[
    str, typer.Option(help="Your own priors as .safetensors, backbone for the classes it was trained on, or none.")
]
RejectOption = Annotated[float, typer.Option(help="Share of photos of other classes to label unknown; 0 for none.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the results to this file.")]

app = typer.Typer(
    help="Few-shot classification without training.",
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


def check_outputs(figure: Path | None = None, inputs: Iterable[Path] = (), **paths: Path | None) -> None:
    """Refuse outputs that cannot be written, or that would overwrite an input, before any work is done."""
    taken = {os.path.realpath(path): "read" for path in inputs}
    for path in (figure, *paths.values()):
        if path is not None:
            check_folder(path)
            real = os.path.realpath(path)
            if real in taken:
                raise InputError(f"{path} is to be written, but it is {taken[real]} as well. Give another name.")
            taken[real] = "to be written"
    if figure is not None and figure.suffix not in FIGURE_FORMATS:
        raise InputError(f"{figure} ends in {figure.suffix!r}. Figures are written as .png, .svg or .pdf.")


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


def screen() -> Console:
    """Return a console for plain text, whose lines are not wrapped; in a pipe, neither are tables."""
    width = None if sys.stdout.isatty() else 500
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True, width=width)
