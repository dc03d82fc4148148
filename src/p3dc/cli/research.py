"""Experiments on features: demo, evaluate, search."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from p3dc.adaptive.settings import check_weights
from p3dc.baselines.registry import also_read
from p3dc.cli.outputs import Use, command
from p3dc.cli.shared import (
    COMPUTING,
    EXPERIMENTS,
    METHOD,
    OUTPUT,
    TASKS,
    Address,
    Engine,
    JsonFile,
    Seed,
    TaskCount,
    app,
    engine_of,
    screen,
)
from p3dc.demo import load_sample
from p3dc.errors import InputError
from p3dc.evaluation import report
from p3dc.evaluation.executors import Drawing, Executor
from p3dc.evaluation.progress import bar
from p3dc.evaluation.protocol import DEFAULT_METHODS, DRAWN_FOR_NOVEL, KEYS, EvaluationPlan, EvaluationResult, run_plan
from p3dc.evaluation.search import SearchResult, gain_outside, search
from p3dc.evaluation.splits import check_disjoint, hold_out
from p3dc.features import FeatureSet
from p3dc.figures import GridDisplay, save_figure
from p3dc.io.atomic import write_json
from p3dc.method import ATTENTIONS
from p3dc.priors.prototypes import Priors
from p3dc.scoring.device_memory import open_device
from p3dc.tasks import PileBalance

DATA, PILE = "Features", "Unlabelled photos of each task"
"""Headings of options."""

Base = Annotated[
    Path,
    typer.Option(help="Features of the base classes, or their priors as .safetensors.", rich_help_panel=DATA),
]
Way = Annotated[int, typer.Option(help="Classes in a task.", rich_help_panel=TASKS)]
Query = Annotated[int, typer.Option(help="Queries of each class.", rich_help_panel=TASKS)]
Nearest = Annotated[
    int, typer.Option(help="Base classes that may pull each sample, the paper's M.", rich_help_panel=METHOD)
]
Power = Annotated[
    float,
    typer.Option(help="Exponent of Tukey's transform, the paper's λ; 0 is the logarithm.", rich_help_panel=METHOD),
]
DeviceName = Annotated[
    str | None,
    typer.Option("--device", help="cuda, cuda:1 or cpu with torch; NumPy by default.", rich_help_panel=COMPUTING),
]
MemoryShare = Annotated[
    str | None,
    typer.Option(
        "--memory",
        help="How much of the device's memory to use: 2GB, or 0.3 of what is free.",
        rich_help_panel=COMPUTING,
    ),
]
Scale = Annotated[
    float | None,
    typer.Option(
        help="Multiplies the similarities to the priors, except with --auto; 1.0 by default, as in the paper.",
        rich_help_panel=METHOD,
    ),
]


@command(app, example="p3dc demo", page="explanation/paper.md", panel=EXPERIMENTS)
def demo(
    out: Annotated[
        Path, typer.Option(help="Where to save the (α, β) heat maps.", rich_help_panel=OUTPUT), Use.WRITES_FIGURE
    ] = Path("p3dc-demo.png"),
    tasks: TaskCount = 2000,
    seed: Seed = 0,
    json: JsonFile = None,
) -> None:
    """Show the method on bird features that ship with the package."""
    sample = load_sample()
    plan = EvaluationPlan(n_tasks=tasks, seed=seed, methods=(*DEFAULT_METHODS, "auto"), attentions=("raw", "unit"))
    results = []
    for n_shot in (1, 5):
        with bar(report.shots(n_shot)) as progress:
            results.append(run_plan(plan, n_shot, **sample._asdict(), progress=progress))
    console = screen()
    console.print(
        f"Accuracy (%) on {len(sample.novel.class_names)} bird species never seen before, "
        f"{plan.n_way} at a time, {tasks:,} tasks, 95 % intervals:\n",
    )
    _print_results(console, results)
    searches = {report.shots(result.n_shot): result.choices["P3DC"].search for result in results}
    _save_heat_maps({title: found for title, found in searches.items() if found is not None}, out)
    console.print(f"Heat maps of α and β on the validation classes: {out}")
    if json is not None:
        write_json(json, report.results_json(plan, results))


@command(
    app,
    example="p3dc evaluate --base base.npz --novel novel.npz --shot 1 --shot 5",
    page="explanation/methods.md",
    panel=EXPERIMENTS,
)
def evaluate(
    base: Base,
    novel: Annotated[Path, typer.Option(help="Features of the classes to test on.", rich_help_panel=DATA)],
    validation: Annotated[
        Path | None, typer.Option(help="Features of the classes to choose α and β on.", rich_help_panel=DATA)
    ] = None,
    way: Way = 5,
    shot: Annotated[
        list[int], typer.Option(help="Labelled samples of each class; may be repeated.", rich_help_panel=TASKS)
    ] = [1],  # noqa: B006
    query: Query = 15,
    tasks: TaskCount = 2000,
    seed: Seed = 0,
    alpha: Annotated[float | None, typer.Option(help="Weight of the sample level.", rich_help_panel=METHOD)] = None,
    beta: Annotated[float | None, typer.Option(help="Weight of the task level.", rich_help_panel=METHOD)] = None,
    extrapolate: Annotated[bool, typer.Option(help="Let α and β leave the triangle.", rich_help_panel=METHOD)] = False,
    nearest: Nearest = 5,
    power: Power = 0.5,
    scale: Scale = None,
    attention: Annotated[
        list[str],
        typer.Option(help=f"{', '.join(ATTENTIONS)}; may be repeated, each gives a row.", rich_help_panel=METHOD),
    ] = ["raw"],  # noqa: B006
    method: Annotated[
        list[str], typer.Option(help=f"{', '.join(KEYS)}; may be repeated.", rich_help_panel=METHOD)
    ] = list(DEFAULT_METHODS),  # noqa: B006
    auto: Annotated[
        bool,
        typer.Option("--auto", help="Add a row whose α, β and scale are chosen for each task.", rich_help_panel=METHOD),
    ] = False,
    unknown: Annotated[
        int,
        typer.Option(
            help="Queries of other classes for each task, to measure open-set detection.", rich_help_panel=TASKS
        ),
    ] = 0,
    pile: Annotated[
        int, typer.Option(help="Unlabelled photos of each task that --auto may learn from.", rich_help_panel=PILE)
    ] = 0,
    pile_balance: Annotated[
        str,
        typer.Option(
            help="Classes in the pile: equal, one, or the concentration of a Dirichlet distribution.",
            rich_help_panel=PILE,
        ),
    ] = "equal",
    pile_unknown: Annotated[
        float, typer.Option(help="Share of the pile that is of other classes.", rich_help_panel=PILE)
    ] = 0.0,
    pile_unknown_classes: Annotated[
        int | None,
        typer.Option(help="How many classes the other photos of a pile are of; by default any.", rich_help_panel=PILE),
    ] = None,
    pile_queries: Annotated[
        str, typer.Option(help="inside: classify the photos of the pile; outside: other photos.", rich_help_panel=PILE)
    ] = "inside",
    engine: Engine = "local",
    address: Address = None,
    device: DeviceName = None,
    memory: MemoryShare = None,
    json: JsonFile = None,
) -> None:
    """Compare methods on tasks of novel classes.

    α and β are those given, or the best on the validation classes, or else the defaults 0 and 0.9. With --auto there is
    a row that needs neither: it chooses from the base classes and from the support of each task. With --pile there is
    another that learns from the unlabelled photos of the task too.
    """
    open_device(device, memory)  # before any of the work is done
    if (alpha is None) != (beta is None):
        raise InputError("only one of --alpha and --beta is given. Give both, or neither.")
    point = None if alpha is None or beta is None else (alpha, beta)
    if point is not None:
        check_weights(*point, extrapolate=extrapolate)
    methods = [*method, "auto"] if auto else method
    if scale is not None and "auto" in methods:
        raise InputError(f"--scale is {scale:g}, but --auto chooses a scale for each task. Leave out one of them.")
    fixed = 1.0 if scale is None else scale
    plan = EvaluationPlan(
        n_way=way,
        n_query=query,
        n_tasks=tasks,
        seed=seed,
        n_unknown=unknown,
        n_pile=pile,
        pile_balance=_balance(pile_balance),
        pile_unknown=pile_unknown,
        pile_unknown_classes=pile_unknown_classes,
        pile_queries=pile_queries,  # type: ignore[arg-type]
        methods=methods,
        attentions=attention,  # type: ignore[arg-type]
        point=point,
        settings={"n_nearest": nearest, "power": power, "scale": fixed, "extrapolate": extrapolate},
    )
    also = also_read(method)
    known, tested = _load_base(base, [name for name in also if name != "maps"]), FeatureSet.load(novel, also=also)
    others = {} if validation is None else {"validation": FeatureSet.load(validation, also=also)}
    check_disjoint(base=known, novel=tested, **others)
    shots = list(dict.fromkeys(shot))
    for features in (tested, *others.values()):
        for n_shot in shots:  # before any of the work is done
            drawn = {name: getattr(plan, name) for name in DRAWN_FOR_NOVEL} if features is tested else {}
            Drawing(way, n_shot, query, seed, **drawn).on(features)(range(1))
    priors = _priors_of(known)
    results = []
    with engine_of(engine, address) as on_ray:
        sets: dict[str, Any] = {"priors": priors, "novel": tested, **others}
        sets |= {"base": known} if isinstance(known, FeatureSet) else {}
        where: dict[str, Any] = {"device": device, "memory": memory, "executor": _executor(on_ray)}
        for n_shot in shots:
            with bar(report.shots(n_shot)) as progress:
                results.append(run_plan(plan, n_shot, **sets, **where, progress=progress))
    console = screen()
    spread = "" if pile_unknown_classes is None else f" of {pile_unknown_classes} classes"
    piles = f"piles of {pile} photos ({pile_balance}, {100 * pile_unknown:g} % unknown{spread})"
    asked = [f"{query} queries a class"] * (not pile or pile_queries == "outside") + [piles] * (pile > 0)
    setting = f"{way} ways, {', '.join(asked)}, {tasks:,} tasks, 95 % intervals"
    console.print(f"Accuracy (%), {setting}:\n")
    _print_results(console, results)
    if json is not None:
        write_json(json, report.results_json(plan, results))


@command(
    app,
    "search",
    example="p3dc search --base base.npz --shot 5 --figure grid.png",
    page="explanation/auto.md",
    panel=EXPERIMENTS,
)
def search_command(
    base: Base,
    validation: Annotated[
        Path | None,
        typer.Option(
            help="Features of the classes to choose on; without them a quarter of the base classes.",
            rich_help_panel=DATA,
        ),
    ] = None,
    way: Way = 5,
    shot: Annotated[int, typer.Option(help="Labelled samples of each class.", rich_help_panel=TASKS)] = 1,
    query: Query = 15,
    tasks: TaskCount = 2000,
    seed: Seed = 0,
    step: Annotated[float, typer.Option(help="Distance of neighbouring points.", rich_help_panel=METHOD)] = 0.1,
    margin: Annotated[float, typer.Option(help="How far outside the triangle to look.", rich_help_panel=METHOD)] = 0.0,
    nearest: Annotated[
        list[int], typer.Option(help="Base classes that may pull a sample, M; may be repeated.", rich_help_panel=METHOD)
    ] = [5],  # noqa: B006
    power: Power = 0.5,
    scale: Annotated[
        list[float] | None,
        typer.Option(
            help="Multiplies similarities to priors; may be repeated; 1.0 by default.", rich_help_panel=METHOD
        ),
    ] = None,
    auto: Annotated[
        bool, typer.Option("--auto", help="Search in the whitened space, at its own scale.", rich_help_panel=METHOD)
    ] = False,
    attention: Annotated[str, typer.Option(help=", ".join(ATTENTIONS) + ".", rich_help_panel=METHOD)] = "raw",
    device: DeviceName = None,
    memory: MemoryShare = None,
    figure: Annotated[
        Path | None, typer.Option(help="Save the heat map to this file.", rich_help_panel=OUTPUT), Use.WRITES_FIGURE
    ] = None,
    json: JsonFile = None,
) -> None:
    """Search a grid of α and β, scales and M on classes other than those to be tested."""
    open_device(device, memory)  # before any of the work is done
    known = _load_base(base)
    if validation is not None:
        features = FeatureSet.load(validation)
    elif isinstance(known, FeatureSet):
        known, features = hold_out(known)
    else:
        raise InputError(f"{base} holds priors, and classes cannot be held out of priors. Give --validation.")
    check_disjoint(base=known, validation=features)
    priors = _priors_of(known)
    drawing: dict[str, Any] = {"n_way": way, "n_shot": shot, "n_query": query, "n_tasks": tasks, "seed": seed}
    drawing |= {"device": device, "memory": memory}
    with bar("grid") as progress:
        result = search(
            priors,
            features,
            **drawing,
            step=step,
            margin=margin,
            n_nearest=nearest,
            power=power,
            scale=scale or None,
            space="whitened" if auto else None,
            attention=attention,  # type: ignore[arg-type]
            progress=progress,
        )
    with bar("fresh tasks") as progress:
        outside = gain_outside(result, priors, features, **drawing, progress=progress)
    console = screen()
    console.print(report.search_table(result), soft_wrap=False)
    console.print(f"\n{result}")
    if outside is not None:
        console.print(report.outside_line(outside))
    if figure is not None:
        _save_heat_maps({report.shots(shot): result}, figure)
    if json is not None:
        write_json(json, report.search_json(result, outside))


def _load_base(path: Path, also: Sequence[str] = ()) -> FeatureSet | Priors:
    return Priors.load(path) if path.suffix == ".safetensors" else FeatureSet.load(path, also=also)


def _priors_of(base: FeatureSet | Priors) -> Priors:
    return base if isinstance(base, Priors) else Priors.from_features(base)


def _balance(text: str) -> PileBalance:
    """Read a balance: a name, or a concentration."""
    try:
        return float(text)
    except ValueError:
        return text  # type: ignore[return-value]


def _executor(on_ray: bool) -> Executor | None:
    """Return the executor of Ray, or None for the default."""
    if not on_ray:
        return None
    from p3dc.cluster.evaluation import run_on_ray

    return run_on_ray


def _print_results(console: Console, results: list[EvaluationResult]) -> None:
    console.print(report.results_table(results), soft_wrap=False)
    console.print()
    for line in report.choice_lines(results):
        console.print(line)


def _save_heat_maps(searches: dict[str, SearchResult], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(searches), 4.4), layout="constrained")
    axes = figure.subplots(1, len(searches), squeeze=False)[0]
    for ax, (title, result) in zip(axes, searches.items(), strict=True):
        GridDisplay.from_search(result, title=f"{title}, validation classes").plot(ax)
    save_figure(figure, path)
