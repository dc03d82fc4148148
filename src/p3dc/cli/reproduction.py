"""The command that runs the paper's experiments."""

from pathlib import Path
from typing import Annotated

import typer
from joblib import cpu_count

from p3dc.baselines.registry import TABLE_1
from p3dc.cli.outputs import Use, command
from p3dc.cli.shared import EXPERIMENTS, METHOD, OUTPUT, TASKS, Seed, TaskCount, app, screen, tell
from p3dc.evaluation.progress import changing_bar
from p3dc.reproduce.claims import claims, count
from p3dc.reproduce.experiments import QUICK, Plan
from p3dc.reproduce.run import reproduce
from p3dc.reproduce.tables import unmeasured


@command(
    app,
    "reproduce",
    example="p3dc reproduce birds/ --out report/ --quick",
    page="explanation/paper.md",
    panel=EXPERIMENTS,
)
def reproduce_command(
    data: Annotated[list[Path], typer.Argument(help="Folders with base, validation and novel features.")],
    out: Annotated[
        Path,
        typer.Option(
            help="Folder for the report; finished parts in it are not computed again.", rich_help_panel=OUTPUT
        ),
        Use.WRITES_FOLDER,
    ],
    tasks: TaskCount = 2000,
    methods: Annotated[
        list[str],
        typer.Option(
            help=f"{', '.join(TABLE_1)}; may be repeated, all by default.", show_default=False, rich_help_panel=METHOD
        ),
    ] = list(TABLE_1),  # noqa: B006
    quick: Annotated[bool, typer.Option(help="100 tasks, and 20 of slow methods.", rich_help_panel=TASKS)] = False,
    protocol: Annotated[
        str, typer.Option(help="paper, or release: as the authors' released scripts.", rich_help_panel=METHOD)
    ] = "paper",
    seed: Seed = 0,
    known_as: Annotated[
        list[str],
        typer.Option(
            "--as",
            help="miniimagenet, tieredimagenet or cub, if class names do not say so; once per folder.",
            rich_help_panel=METHOD,
        ),
    ] = [],  # noqa: B006
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Processes to compute rows in; all cores by default.", rich_help_panel=TASKS),
    ] = None,
) -> None:
    """Run the paper's experiments and write a report with every table and figure.

    The paper's numbers are shown for data sets that have the paper's classes, by their WordNet ids or names, or that
    --as declares to be the paper's.
    """
    amounts = QUICK if quick else {"n_tasks": tasks}
    plan = Plan(**amounts, seed=seed, protocol=protocol, methods=methods)  # type: ignore[arg-type]
    console = screen()
    console.print(f"{plan.n_tasks:,} tasks of {', '.join(map(str, data))}; finished parts are kept in {out}")
    try:
        with changing_bar() as start_step:
            studies = reproduce(data, out, plan, start_step, known_as, jobs or cpu_count())
    except KeyboardInterrupt:
        tell(f"stopped. Run the same command again to go on from the finished parts in {out}.")
        raise
    for study in studies:
        found = claims(study)
        told = count(found) if found else "not one of the paper's data sets by its classes; nothing to compare with"
        console.print(f"{study.data.name}: {told}")
        if study.data.held_out:
            console.print("  no validation features: α, β and all other parameters chosen on held-out base classes")
        for line in unmeasured(study):
            console.print(f"  {line}")
    console.print(f"Report: {out / 'report.html'}")
