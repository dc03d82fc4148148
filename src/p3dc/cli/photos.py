"""Commands for photos: fit, predict, label, explain, add."""

import fcntl
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from p3dc._arrays import Progress
from p3dc.cli.csv_output import csv_output
from p3dc.cli.outputs import Use, command
from p3dc.cli.review import describe_pile, facts_of, print_review, report_failures, report_skipped
from p3dc.cli.shared import (
    CLASSES,
    NETWORK,
    OUTPUT,
    PHOTOS,
    BackboneOption,
    DeviceOption,
    JsonFile,
    PriorsOption,
    RejectOption,
    ViewsOption,
    app,
    screen,
)
from p3dc.errors import InputError
from p3dc.evaluation.progress import bar, changing_bar
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.backbones.loading import DEFAULT, load_backbone
from p3dc.images.classifier import REJECT, ImageClassifier
from p3dc.images.decoding import Photo
from p3dc.images.examples import labelled
from p3dc.images.prediction_rows import COLUMNS, row
from p3dc.images.shards import LISTERS
from p3dc.images.sources import ImageFile, list_images
from p3dc.io.atomic import check_folder, write_json
from p3dc.io.store import location
from p3dc.priors.prototypes import Priors

ModelFile = Annotated[Path, typer.Argument(help="A model that fit wrote.")]
ModelBackbone = Annotated[
    str | None,
    typer.Option(help="The folder or .onnx file that the model was made with.", rich_help_panel=NETWORK),
    Use.READS,
]
CsvFile = Annotated[
    Path | None,
    typer.Option("--csv", help="Write the labels to this file.", rich_help_panel=OUTPUT),
    Use.WRITES_FILE,
]
NewModel = typer.Option(help="The .safetensors file to write the model to.", rich_help_panel=OUTPUT)
SupportFolder = Annotated[
    Path,
    typer.Argument(help="A folder of photos for each class, or a CSV of path and label."),
    Use.READS_PHOTOS,
]


@command(app, example="p3dc fit photos/ --out model.safetensors", page="howto/photos.md", panel=PHOTOS)
def fit(
    support: SupportFolder,
    out: Annotated[Path, NewModel, Use.WRITES_FILE],
    priors: PriorsOption = "backbone",
    backbone: BackboneOption = DEFAULT,
    device: DeviceOption = None,
    reject: RejectOption = REJECT,
    views: ViewsOption = 1,
    unlabelled: Annotated[
        list[Path] | None,
        typer.Option(
            help="Photos without labels, or a folder of them, to refine the classes with; may be repeated.",
            readable=False,
            rich_help_panel=CLASSES,
        ),
        Use.READS_PHOTOS,
    ] = None,
    json: JsonFile = None,
) -> None:
    """Learn classes from a few photos of each."""
    _check_model(out)
    others = _list_photos(unlabelled or ())
    with changing_bar() as begin:
        network = load_backbone(backbone, device=device)
        classifier = _learn(support, network, priors, reject, views, begin("photos"))
        if others:
            together = classifier.label_together(others, progress=begin("photos without labels"))
            classifier = together.classifier
            report_failures((found.key, found.failure) for found in together.predictions if found.failure)
            if not classifier.unlabelled_keys:
                raise InputError(
                    f"none of the {len(others)} unlabelled photos could be read. Look at the reasons above."
                )
    classifier.save(out)
    if json is not None:
        write_json(json, facts_of(classifier))
    print_review(classifier, out)


@command(app, example="p3dc add model.safetensors more/", page="howto/photos.md", panel=PHOTOS)
def add(
    model: ModelFile,
    support: Annotated[
        Path, typer.Argument(help="More photos: a folder for each class, known or new."), Use.READS_PHOTOS
    ],
    backbone: ModelBackbone = None,
    device: DeviceOption = None,
    json: JsonFile = None,
) -> None:
    """Add photos of known or new classes to a model."""
    check_folder(model)  # it is replaced
    n_files = len(_list_labelled(support))
    with _locked(model), bar("photos") as progress:
        before = ImageClassifier.load(model, backbone, device=device)
        after = before.add(support, progress)
        if len(after.failures) < n_files:
            after.save(model)
    if json is not None:
        write_json(json, facts_of(after))
    n_known = n_files - len(after.failures) - (len(after.examples) - len(before.examples))
    if n_known:
        verb = "photo was" if n_known == 1 else "photos were"
        screen().print(f"{n_known} {verb} there already and left out")
    print_review(after, model)
    if len(after.failures) == n_files:
        raise InputError("none of the photos could be read, so nothing was added. Look at the reasons above.")


@command(
    app,
    example="p3dc predict model.safetensors new/ --csv labels.csv",
    page="howto/photos.md",
    panel=PHOTOS,
)
def predict(
    model: ModelFile,
    photos: Annotated[
        list[Path], typer.Argument(help="Photos, and folders of photos.", readable=False), Use.READS_PHOTOS
    ],
    csv_file: CsvFile = None,
    backbone: ModelBackbone = None,
    views: Annotated[
        int | None,
        typer.Option(help="Views of each photo; by default as many as of the examples.", rich_help_panel=NETWORK),
    ] = None,
    device: DeviceOption = None,
    json: JsonFile = None,
) -> None:
    """Label photos; each label is printed as soon as it is known."""
    classifier = ImageClassifier.load(model, backbone, device=device)
    files = _list_photos(photos)
    counts: Counter[str] = Counter()
    failures: list[tuple[str, str]] = []
    with csv_output(csv_file) as write:
        write(COLUMNS)
        for found in classifier.predict(files, views=views):
            write(row(found))
            if found.failure:
                failures.append((found.key, found.failure))
            else:
                counts[found.label] += 1
        report_failures(failures)
        if json is not None:
            failed = [{"path": key, "why": why} for key, why in failures]
            write_json(json, {"labels": counts, "failures": failed})
        if not counts:  # an old CSV stays
            raise InputError(f"none of the {len(files)} photos could be read. Look at the reasons above.")
    if csv_file is not None:
        listed = ", ".join(f"{label} {count}" for label, count in sorted(counts.items()))
        screen(errors=True).print(f"{counts.total():,} photos labelled in {csv_file}: {listed}")


@command(app, example="p3dc label photos/ new/ --csv labels.csv", page="howto/photos.md", panel=PHOTOS)
def label(
    support: SupportFolder,
    photos: Annotated[
        list[Path], typer.Argument(help="Photos to label, and folders of photos.", readable=False), Use.READS_PHOTOS
    ],
    csv_file: CsvFile = None,
    priors: PriorsOption = "backbone",
    backbone: BackboneOption = DEFAULT,
    device: DeviceOption = None,
    reject: RejectOption = REJECT,
    views: ViewsOption = 1,
    equal: Annotated[
        bool,
        typer.Option(
            "--equal", help="All photos are of the classes, about equally many of each.", rich_help_panel=CLASSES
        ),
    ] = False,
    save: Annotated[Path | None, NewModel, Use.WRITES_FILE] = None,
    json: JsonFile = None,
) -> None:
    """Label photos together: they refine each other's labels, and those like no class are grouped."""
    if save is not None:
        _check_model(save)
    files = _list_photos(photos)
    with changing_bar() as begin:
        network = load_backbone(backbone, device=device)
        classifier = _learn(support, network, priors, reject, views, begin("examples"))
        together = classifier.label_together(files, balance="equal" if equal else None, progress=begin("photos"))
    failures = [(found.key, found.failure) for found in together.predictions if found.failure]
    report_failures([*classifier.failures, *failures])
    refined, counts = together.classifier, Counter(found.label for found in together.predictions if not found.failure)
    group_of = {key: str(number) for number, keys in enumerate(together.groups, 1) for key in keys}
    if not counts:
        raise InputError(f"none of the {len(files)} photos could be read. Look at the reasons above.")
    with csv_output(csv_file, echo=False) as write:
        write((*COLUMNS, "group"))
        for found in together.predictions:
            write([*row(found), group_of.get(found.key, "")])
    if save is not None:
        refined.save(save)
    if json is not None:
        failed = [{"path": key, "why": why} for key, why in failures]
        use = refined.unlabelled_use
        write_json(json, {"labels": counts, "unlabelled_use": use, "groups": together.groups, "failures": failed})
    listed = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    where = "" if csv_file is None else f" in {csv_file}"
    console = screen(errors=csv_file is None)
    console.print(f"{counts.total():,} photos labelled{where}: {listed}")
    for line in describe_pile(refined):
        console.print(line)
    if save is not None:
        console.print(f"Model: {save}")


@command(
    app,
    example="p3dc explain model.safetensors new/0.png --out why.png",
    page="howto/photos.md",
    panel=PHOTOS,
)
def explain(
    model: ModelFile,
    photo: Annotated[Path, typer.Argument(help="The photo to explain.")],
    out: Annotated[
        Path,
        typer.Option(help="The picture to write, as .png, .svg or .pdf.", rich_help_panel=OUTPUT),
        Use.WRITES_FIGURE,
    ] = Path("explanation.png"),
    backbone: ModelBackbone = None,
    device: DeviceOption = None,
    json: JsonFile = None,
) -> None:
    """Show why a photo has its label: the nearest examples and the base classes that pulled them."""
    from p3dc.figures import ExplanationDisplay
    from p3dc.images.explanation import explain as explain_photo

    explanation = explain_photo(ImageClassifier.load(model, backbone, device=device), photo)
    ExplanationDisplay(explanation).save(out)
    if json is not None:
        write_json(json, explanation.to_json())
    for line in explanation.lines():
        screen().print(line)
    screen().print(f"Picture: {out}")


def _check_model(out: Path) -> None:
    if out.suffix != ".safetensors":
        raise InputError(f"{out} ends in {out.suffix!r}. Models are written as .safetensors.")


def _learn(
    support: Path, backbone: Backbone, priors: str, reject: float, views: int, progress: Progress
) -> ImageClassifier:
    """Learn from labelled photos; report skipped files."""
    _list_labelled(support)
    return ImageClassifier.from_folder(
        support, backbone=backbone, priors=_load_priors(priors), reject=reject or None, views=views, progress=progress
    )


def _list_labelled(support: Path) -> list[ImageFile]:
    """List labelled photos and report skipped files."""
    skipped: Counter[str] = Counter()
    files = labelled(support, skipped)
    report_skipped(skipped)
    return files


def _list_photos(photos: Iterable[Path]) -> list[Photo]:
    return [path for given in photos for path in _photos(given)]


def _photos(given: Path) -> Iterable[Photo]:
    place = location(given)
    try:
        several = place.suffix.lower() in (".csv", *LISTERS) or place.is_dir()
        return (file.path for file in list_images(place)) if several else [str(place)]
    except OSError:  # its type cannot be found out; reading it gives the reason
        return [given]


@contextmanager
def _locked(model: Path) -> Iterator[None]:
    """Lock a model file; wait until no other process adds to it."""
    while True:
        if not model.is_file():
            raise InputError(f"{model} is not a file. Give one that fit wrote.")
        with model.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), model.stat()):  # no other process has replaced it meanwhile
                yield
                return


def _load_priors(name: str) -> Any:
    if name == "none":
        return None
    return name if name == "backbone" else Priors.load(name)
