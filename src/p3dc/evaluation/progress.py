"""Progress bars, on a terminal or in a notebook."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import progress as rich_progress
from rich.console import Console
from rich.text import Text

from p3dc._arrays import Progress


@contextmanager
def changing_bar() -> Iterator[Callable[[str], Progress]]:
    """Show one progress bar for several steps; the yielded function begins a step. In a pipe, show none."""
    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield lambda _: lambda done, total: None
        return
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        Rate(),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=console, transient=True) as shown:
        line = shown.add_task("")

        def begin(title: str) -> Progress:
            shown.reset(line, description=title, total=None)
            return lambda done, total: shown.update(line, completed=done, total=total)

        yield begin


@contextmanager
def bar(title: str) -> Iterator[Progress]:
    """Show a progress bar on a terminal; in a pipe, show none."""
    with changing_bar() as begin:
        yield begin(title)


@contextmanager
def reporting(progress: Progress | bool | None, title: str) -> Iterator[Progress | None]:
    """Yield the function that is given, that of a new bar for True, or None."""
    if progress is True:
        with bar(title) as shown:
            yield shown
    else:
        yield progress or None


class Rate(rich_progress.ProgressColumn):
    """Steps per second."""

    def render(self, task: rich_progress.Task) -> Text:
        """Return the rate, if it is known."""
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")
