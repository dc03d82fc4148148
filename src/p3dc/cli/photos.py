"""Commands for photos: extract, fit, predict, explain, add."""

import csv
import fcntl
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from p3dc.cli.shared import Address, Engine, JsonFile, Known, Network, Share, app, bar, check_outputs, engine_of, screen
from p3dc.errors import InputError
from p3dc.images.backbones import lite0
from p3dc.images.backbones.loading import load_backbone
from p3dc.images.classifier import REJECT, ImageClassifier, Prediction
from p3dc.images.examples import labelled
from p3dc.images.prediction_rows import COLUMNS, row
from p3dc.images.sources import ImageFile, each_image, list_folder, readable
from p3dc.io.atomic import replacing, write_json
from p3dc.priors.prototypes import Priors

if TYPE_CHECKING:
    from p3dc.images.extraction import Extraction

MOST_LINES = 20


@app.command()
def extract(
    images: Annotated[Path, typer.Argument(help="A folder for each class, a flat folder, or a CSV of path and label.")],
    out: Annotated[Path, typer.Option(help="Folder for the features; a run that was interrupted goes on.")],
    backbone: Network = lite0.NAME,
    batch: Annotated[int, typer.Option(help="Images that the network gets at once.")] = 32,
    part_rows: Annotated[
        int, typer.Option(help="Images in a part, which is what a process loses when it dies.")
    ] = 4096,
    engine: Engine = "local",
    address: Address = None,
    json: JsonFile = None,
) -> None:
    """Turn images into features, as Parquet parts."""
    check_outputs(json=json, inputs=[images])
    others: Counter[str] = Counter()
    found: Counter[str] = Counter()
    files = _counted(each_image(images, others), found, others)
    with engine_of(engine, address) as on_ray, bar("images") as progress:
        told = None if progress is None else (lambda done, _: progress(done, found.total()))
        done = _extract(files, backbone, out, on_ray=on_ray, part_rows=part_rows, batch=batch, progress=told)
    if json is not None:
        failed = [{"id": key, "why": why} for key, why in done.failures]
        write_json(json, {"folder": str(out), "rows": done.n_rows, "files": done.n_files, "failures": failed})
    _tell_failures(done.failures)
    earlier = f", {done.n_kept:,} of them by an earlier run" if done.n_kept else ""
    screen().print(f"{done.n_rows:,} of {done.n_files:,} images extracted to {readable(out)}{earlier}", soft_wrap=True)
    if not done.n_rows:
        raise InputError("none of the images could be read. Look at the reasons above.")


@app.command()
def fit(
    support: Annotated[Path, typer.Argument(help="A folder of photos for each class, or a CSV of path and label.")],
    out: Annotated[Path, typer.Option(help="The .safetensors file to write.")],
    priors: Known = "backbone",
    backbone: Network = lite0.NAME,
    reject: Share = REJECT,
    json: JsonFile = None,
) -> None:
    """Learn classes from a few photos of each."""
    check_outputs(json=json, out=out, inputs=[support])
    _check_model(out)
    n_files = len(_list(labelled, support))
    network = load_backbone(backbone)
    with bar("photos") as progress:
        classifier = ImageClassifier.from_folder(
            support,
            backbone=network,
            priors=_priors(priors),
            reject=reject or None,
            progress=None if progress is None else (lambda done: progress(done, n_files)),
        )
    classifier.save(out)
    if json is not None:
        write_json(json, _facts(classifier))
    _tell_findings(classifier, out)


@app.command()
def add(
    model: Annotated[Path, typer.Argument(help="A file that fit wrote.")],
    support: Annotated[Path, typer.Argument(help="More photos: a folder for each class, known or new.")],
    backbone: Annotated[str | None, typer.Option(help="The .onnx file, where the model was made with one.")] = None,
    json: JsonFile = None,
) -> None:
    """Add photos, of known or of new classes, to a model."""
    check_outputs(json=json, inputs=[model, support])
    n_files = len(_list(labelled, support))
    with _alone_with(model), bar("photos") as progress:
        before = ImageClassifier.load(model, backbone)
        after = before.add(support, None if progress is None else (lambda done: progress(done, n_files)))
        if len(after.failures) < n_files:
            after.save(model)
    if json is not None:
        write_json(json, _facts(after))
    there = n_files - len(after.failures) - (len(after.examples) - len(before.examples))
    if there:
        verb = "photo was" if there == 1 else "photos were"
        screen().print(f"{there} {verb} there already and left out", soft_wrap=True)
    _tell_findings(after, model)
    if len(after.failures) == n_files:
        raise InputError("none of the photos could be read, so nothing was added. Look at the reasons above.")


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A file that fit wrote.")],
    photos: Annotated[list[Path], typer.Argument(help="Photos, and folders of photos.", readable=False)],
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write the labels to this file.")] = None,
    backbone: Annotated[str | None, typer.Option(help="The .onnx file, where the model was made with one.")] = None,
    json: JsonFile = None,
) -> None:
    """Label photos; each label is printed as soon as it is there."""
    check_outputs(json=json, csv=csv_file, inputs=[model, *photos])
    classifier = ImageClassifier.load(model, backbone)
    files = [path for given in photos for path in _photos(given)]
    counts: dict[str, int] = {}
    failures: list[tuple[str, str]] = []
    with _table(csv_file) as write:
        write(None)
        for found in classifier.predict(files):
            write(found)
            if found.failure:
                failures.append((found.key, found.failure))
            else:
                counts[found.label] = counts.get(found.label, 0) + 1
    _tell_failures(failures)
    if csv_file is not None:
        listed = ", ".join(f"{label} {count}" for label, count in sorted(counts.items()))
        typer.echo(f"{sum(counts.values()):,} photos labelled in {csv_file}: {listed}", err=True)
    if json is not None:
        failed = [{"path": key, "why": why} for key, why in failures]
        write_json(json, {"labels": counts, "failures": failed})
    if not counts:
        raise InputError(f"none of the {len(files)} photos could be read. Look at the reasons above.")


@app.command()
def explain(
    model: Annotated[Path, typer.Argument(help="A file that fit wrote.")],
    photo: Annotated[Path, typer.Argument(help="The photo to explain.")],
    out: Annotated[Path, typer.Option(help="The picture to write, as .png, .svg or .pdf.")] = Path("explanation.png"),
    backbone: Annotated[str | None, typer.Option(help="The .onnx file, where the model was made with one.")] = None,
    json: JsonFile = None,
) -> None:
    """Show why a photo gets its label: the nearest examples and the base classes that pulled them."""
    from p3dc.images.explanation import explain as explain_photo

    check_outputs(json=json, figure=out, inputs=[model, photo])
    explanation = explain_photo(ImageClassifier.load(model, backbone), photo)
    explanation.save(out)
    if json is not None:
        write_json(json, explanation.to_json())
    for line in explanation.lines():
        screen().print(line, soft_wrap=True)
    screen().print(f"Picture: {out}", soft_wrap=True)


def _extract(files: Iterator[ImageFile], backbone: str, out: Path, *, on_ray: bool, **options: Any) -> "Extraction":
    """Extract here or on a Ray, where all files are counted before the first is done, so that a bar has an end."""
    if not on_ray:
        from p3dc.images.extraction import extract as extract_here

        return extract_here(list(files), load_backbone(backbone), out, **options)
    from p3dc.cluster.extraction import extract as extract_on_workers

    place = backbone if backbone == lite0.NAME else Path(backbone).absolute()
    return extract_on_workers(files, partial(load_backbone, place), out, **options)


def _list(listing: Callable[[Path, Counter[str]], list[ImageFile]], path: Path) -> list[ImageFile]:
    """List images and tell what was passed over."""
    others: Counter[str] = Counter()
    files = listing(path, others)
    _tell_others(others)
    return files


def _counted(files: Iterable[ImageFile], found: Counter[str], others: Counter[str]) -> Iterator[ImageFile]:
    """Count images as they are listed; after the last, tell what was passed over."""
    for file in files:
        found["images"] += 1
        yield file
    _tell_others(others)


def _tell_others(others: Counter[str]) -> None:
    if others:
        listed = ", ".join(f"{readable(ending) or 'no ending'} {count:,}" for ending, count in others.most_common(5))
        typer.echo(f"p3dc: {others.total():,} files that do not end like an image are passed over: {listed}", err=True)


def _photos(given: Path) -> Iterable[Path]:
    try:
        return (file.path for file in list_folder(given)) if given.is_dir() else [given]
    except OSError:  # it cannot even be asked what it is; reading it will say why
        return [given]


@contextmanager
def _alone_with(model: Path) -> Iterator[None]:
    """Wait until no other process adds to a model."""
    while True:
        if not model.is_file():
            raise InputError(f"{model} is not a file. Give one that fit wrote.")
        with model.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), model.stat()):  # nobody replaced it meanwhile
                yield
                return


def _check_model(out: Path) -> None:
    if out.suffix != ".safetensors":
        raise InputError(f"{out} ends in {out.suffix!r}. Models are written as .safetensors.")


def _priors(name: str) -> Any:
    if name == "none":
        return None
    return name if name == "backbone" else Priors.load(name)


def _tell_failures(failures: Iterable[tuple[str, str]]) -> None:
    for key, why in failures:
        typer.echo(f"p3dc: {key}: {why}", err=True)


def _tell_findings(classifier: ImageClassifier, out: Path) -> None:
    found, console = classifier.findings, screen()
    _tell_failures(classifier.failures)
    listed = ", ".join(f"{name} {count}" for name, count in found.shots.items())
    console.print(f"{len(found.shots)} classes, {sum(found.shots.values())} photos: {listed}", soft_wrap=True)
    for one, two in found.duplicates[:MOST_LINES]:
        console.print(f"the same photo twice: {one} and {two}", soft_wrap=True)
    if len(found.duplicates) > MOST_LINES:
        console.print(f"and {len(found.duplicates) - MOST_LINES:,} more pairs of the same photo", soft_wrap=True)
    for key, label, other in found.misfiled:
        console.print(f"{key} looks more like {other} than like the rest of {label}", soft_wrap=True)
    if found.relevance is not None and classifier.priors is not None:
        how = "are left alone" if found.beta == 0 else f"pull with weight {found.beta:.2f}"
        known = f"{len(classifier.priors):,} base classes"
        console.print(f"{known} {how} (relevance {found.relevance:+.2f})", soft_wrap=True)
    console.print(f"Model: {out}", soft_wrap=True)


def _facts(classifier: ImageClassifier) -> dict[str, Any]:
    found = classifier.findings
    return {
        "shots": found.shots,
        "duplicates": [list(pair) for pair in found.duplicates],
        "misfiled": [{"photo": key, "label": label, "nearer_to": other} for key, label, other in found.misfiled],
        "failures": [{"photo": key, "why": why} for key, why in classifier.failures],
        "relevance": found.relevance,
        "beta": found.beta,
        "backbone": {"name": classifier.backbone.name, "digest": classifier.backbone.digest},
    }


@contextmanager
def _table(path: Path | None) -> Iterator[Callable[[Prediction | None], None]]:
    """Give a function that writes a prediction as CSV: to the screen at once, and to a file that appears whole."""
    if path is None:
        yield _writer(sys.stdout)
        return
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        in_file, on_screen = _writer(file), _writer(sys.stdout)

        def write(found: Prediction | None) -> None:
            in_file(found)
            try:
                on_screen(found)
            except OSError:  # whoever read it has left, or has no room; the file is still wanted
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

        yield write


def _writer(file: IO[str]) -> Callable[[Prediction | None], None]:
    """Write the names of the columns for None, and then a line for each prediction."""
    table = csv.writer(file, lineterminator="\n")

    def write(found: Prediction | None) -> None:
        if found is None:
            table.writerow(COLUMNS)
        else:
            table.writerow(row(found))
        file.flush()

    return write
