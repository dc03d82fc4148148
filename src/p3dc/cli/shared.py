"""What all commands share: the program itself, outputs and progress bars."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from p3dc.errors import InputError
from p3dc.io.atomic import FIGURE_FORMATS, check_folder

Callback = Callable[[int, int], None]
"""Called with how much is done and how much there is."""

ENGINES = ("local", "ray")

Engine = Annotated[str, typer.Option(help="local, or ray: the processes of a cluster, or of this machine.")]
Address = Annotated[
    str | None, typer.Option(help="host:port of a Ray that runs; without it one is started on this machine.")
]
Network = Annotated[
    str,
    typer.Option("--backbone", help="efficientnet-lite0, or an .onnx file with a .toml of its preprocessing."),
]
Known = Annotated[
    str, typer.Option(help="Priors of your own as .safetensors, backbone for the classes it was trained on, or none.")
]
Share = Annotated[float, typer.Option(help="Share of photos of other classes to call unknown; 0 for none.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]

app = typer.Typer(
    help="Few-shot classification without training.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def program() -> None:
    """Few-shot classification without training."""


def check_outputs(figure: Path | None = None, inputs: Iterable[Path] = (), **paths: Path | None) -> None:
    """Refuse what could not be written, or would destroy what is read, before any work is done."""
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
    """Tell whether the work goes to a Ray, and join it for as long as that takes."""
    if engine not in ENGINES:
        raise InputError(f"there is no engine {engine!r}. Choose from {', '.join(ENGINES)}.")
    if engine == "local":
        if address is not None:
            raise InputError("--address is that of a Ray. Give --engine ray as well, or leave it out.")
        yield False
        return
    from p3dc.cluster.connection import connected

    with connected(address):
        yield True


def screen() -> Console:
    """Print plainly; in a pipe, where nobody sees an edge, on lines as long as they need to be."""
    width = None if sys.stdout.isatty() else 500
    return Console(highlight=False, markup=False, emoji=False, width=width)


@contextmanager
def changing_bar() -> Iterator[Callable[[str], Callback]]:
    """Show one bar for whatever is being done now; in a pipe nothing."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        line = shown.add_task("")

        def tell(title: str) -> Callback:
            shown.reset(line, description=title, total=None)
            return lambda done, total: shown.update(line, completed=done, total=total)

        yield tell


@contextmanager
def bar(title: str) -> Iterator[Callback | None]:
    """Show a progress bar on a terminal; in a pipe nothing."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        line = shown.add_task(title)
        yield lambda done, total: shown.update(line, completed=done, total=total)


class Rate(ProgressColumn):
    """How many are done in a second."""

    def render(self, task: Task) -> Text:
        """Write the rate, where there is one."""
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")
