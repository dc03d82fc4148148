"""Commands for features: demo, evaluate, search, reproduce."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from p3dc.adaptive.settings import check_weights
from p3dc.baselines.registry import TABLE_1, also_read
from p3dc.cli.outputs import Use, command
from p3dc.cli.shared import Address, Engine, JsonFile, app, engine_of, screen, tell
from p3dc.demo import load_sample
from p3dc.errors import InputError
from p3dc.evaluation import report
from p3dc.evaluation.executors import Drawing, Executor
from p3dc.evaluation.progress import bar, changing_bar
from p3dc.evaluation.protocol import DEFAULT_METHODS, DRAWN_FOR_NOVEL, KEYS, EvaluationPlan, EvaluationResult, run_plan
from p3dc.evaluation.search import SearchResult, gain_outside, search
from p3dc.evaluation.splits import check_disjoint, hold_out
from p3dc.features import FeatureSet
from p3dc.figures import GridDisplay, save_figure
from p3dc.io.atomic import write_json
from p3dc.method import ATTENTIONS
from p3dc.priors.prototypes import Priors
from p3dc.reproduce.claims import claims, count
from p3dc.reproduce.experiments import QUICK, Plan
from p3dc.reproduce.run import reproduce
from p3dc.reproduce.tables import unmeasured
from p3dc.scoring.device_memory import open_device
from p3dc.tasks import PileBalance

Base = Annotated[Path, typer.Option(help="Features of the base classes, or their priors as .safetensors.")]
Way = Annotated[int, typer.Option(help="Classes in a task.")]
Query = Annotated[int, typer.Option(help="Queries of each class.")]
TaskCount = Annotated[int, typer.Option("--tasks", help="How many tasks to draw.")]
Seed = Annotated[int, typer.Option(help="Seed of the random sequence of tasks.")]
Nearest = Annotated[int, typer.Option(help="Base classes that may pull each sample, the paper's M.")]
Power = Annotated[float, typer.Option(help="Exponent of Tukey's transform, the paper's λ; 0 is the logarithm.")]
DeviceName = Annotated[str | None, typer.Option("--device", help="cuda, cuda:1 or cpu with torch; NumPy by default.")]
MemoryShare = Annotated[
    str | None, typer.Option("--memory", help="How much of the device's memory to use: 2GB, or 0.3 of what is free.")
]
Scale = Annotated[
    float | None,
    typer.Option(help="Multiplies the similarities to the priors, except with --auto. [default: 1.0, the paper's]"),
]


@command(app)
def demo(
    out: Annotated[Path, typer.Option(help="Where to save the (α, β) heat maps."), Use.WRITES_FIGURE] = Path(
        "p3dc-demo.png"
    ),
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


@command(app)
def evaluate(
    base: Base,
    novel: Annotated[Path, typer.Option(help="Features of the classes to test on.")],
    validation: Annotated[Path | None, typer.Option(help="Features of the classes to choose α and β on.")] = None,
    way: Way = 5,
    shot: Annotated[list[int], typer.Option(help="Labelled samples of each class; may be repeated.")] = [1],  # noqa: B006
    query: Query = 15,
    tasks: TaskCount = 2000,
    seed: Seed = 0,
    alpha: Annotated[float | None, typer.Option(help="Weight of the sample level.")] = None,
    beta: Annotated[float | None, typer.Option(help="Weight of the task level.")] = None,
    extrapolate: Annotated[bool, typer.Option(help="Let α and β leave the triangle.")] = False,
    nearest: Nearest = 5,
    power: Power = 0.5,
    scale: Scale = None,
    attention: Annotated[
        list[str], typer.Option(help=f"{', '.join(ATTENTIONS)}; may be repeated, each gives a row.")
    ] = ["raw"],  # noqa: B006
    method: Annotated[list[str], typer.Option(help=f"{', '.join(KEYS)}; may be repeated.")] = list(DEFAULT_METHODS),  # noqa: B006
    auto: Annotated[
        bool, typer.Option("--auto", help="Add a row whose α, β and scale are chosen for each task.")
    ] = False,
    unknown: Annotated[
        int, typer.Option(help="Queries of other classes for each task, to measure open-set detection.")
    ] = 0,
    pile: Annotated[int, typer.Option(help="Unlabelled photos of each task that --auto may learn from.")] = 0,
    pile_balance: Annotated[
        str, typer.Option(help="Classes in the pile: equal, one, or the concentration of a Dirichlet distribution.")
    ] = "equal",
    pile_unknown: Annotated[float, typer.Option(help="Share of the pile that is of other classes.")] = 0.0,
    pile_unknown_classes: Annotated[
        int | None, typer.Option(help="How many classes the other photos of a pile are of; by default any.")
    ] = None,
    pile_queries: Annotated[
        str, typer.Option(help="inside: classify the photos of the pile; outside: other photos.")
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


@command(app, "search")
def search_command(
    base: Base,
    validation: Annotated[
        Path | None,
        typer.Option(help="Features of the classes to choose on; without them a quarter of the base classes."),
    ] = None,
    way: Way = 5,
    shot: Annotated[int, typer.Option(help="Labelled samples of each class.")] = 1,
    query: Query = 15,
    tasks: TaskCount = 2000,
    seed: Seed = 0,
    step: Annotated[float, typer.Option(help="Distance of neighbouring points.")] = 0.1,
    margin: Annotated[float, typer.Option(help="How far outside the triangle to look.")] = 0.0,
    nearest: Annotated[list[int], typer.Option(help="Base classes that may pull a sample, M; may be repeated.")] = [5],  # noqa: B006
    power: Power = 0.5,
    scale: Annotated[
        list[float] | None, typer.Option(help="Multiplies similarities to priors; may be repeated. [default: 1.0]")
    ] = None,
    auto: Annotated[bool, typer.Option("--auto", help="Search in the whitened space, at its own scale.")] = False,
    attention: Annotated[str, typer.Option(help=", ".join(ATTENTIONS) + ".")] = "raw",
    device: DeviceName = None,
    memory: MemoryShare = None,
    figure: Annotated[Path | None, typer.Option(help="Save the heat map to this file."), Use.WRITES_FIGURE] = None,
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


@command(app, "reproduce")
def reproduce_command(
    data: Annotated[list[Path], typer.Argument(help="Folders with base, validation and novel features.")],
    out: Annotated[
        Path,
        typer.Option(help="Folder for the report; finished parts in it are not computed again."),
        Use.WRITES_FOLDER,
    ],
    tasks: TaskCount = 2000,
    methods: Annotated[list[str], typer.Option(help=f"{', '.join(TABLE_1)}; may be repeated.")] = list(TABLE_1),  # noqa: B006
    quick: Annotated[bool, typer.Option(help="100 tasks, and 20 of slow methods.")] = False,
    protocol: Annotated[str, typer.Option(help="paper, or release: as the authors' released scripts.")] = "paper",
    seed: Seed = 0,
    known_as: Annotated[
        list[str],
        typer.Option(
            "--as", help="miniimagenet, tieredimagenet or cub, if class names do not say so; once per folder."
        ),
    ] = [],  # noqa: B006
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
            studies = reproduce(data, out, plan, start_step, known_as)
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
