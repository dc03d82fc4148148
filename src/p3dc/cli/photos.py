"""Commands for photos: extract, fit, predict, label, explain, add."""

import fcntl
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from p3dc._arrays import Progress
from p3dc.cli.csv_output import csv_output
from p3dc.cli.outputs import Use, command
from p3dc.cli.review import describe_pile, facts_of, print_review, report_failures
from p3dc.cli.shared import (
    Address,
    BackboneOption,
    DeviceOption,
    Engine,
    JsonFile,
    PriorsOption,
    RejectOption,
    app,
    engine_of,
    screen,
    tell,
)
from p3dc.errors import InputError
from p3dc.evaluation.progress import bar, changing_bar
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.backbones.loading import DEFAULT, absolute_address, load_backbone
from p3dc.images.classifier import REJECT, ImageClassifier
from p3dc.images.decoding import Photo
from p3dc.images.examples import labelled
from p3dc.images.prediction_rows import COLUMNS, row
from p3dc.images.shards import LISTERS
from p3dc.images.sources import ImageFile, list_images, readable
from p3dc.io.atomic import check_folder, write_json
from p3dc.io.store import Location, location
from p3dc.priors.prototypes import Priors

if TYPE_CHECKING:
    from p3dc.images.extraction import Extraction

ModelFile = Annotated[Path, typer.Argument(help="A model that fit wrote.")]
ViewsOption = Annotated[int, typer.Option(help="Views of each photo to average, from 1 to 7; N take N times as long.")]
ModelBackbone = Annotated[
    str | None, typer.Option(help="The folder or .onnx file that the model was made with."), Use.READS
]
CsvFile = Annotated[Path | None, typer.Option("--csv", help="Write the labels to this file."), Use.WRITES_FILE]
SupportFolder = Annotated[
    Path,
    typer.Argument(help="A folder of photos for each class, or a CSV of path and label."),
    Use.READS_PHOTOS,
]


@command(app)
def extract(
    images: Annotated[
        Path,
        typer.Argument(help="A folder, a CSV of path and label, or shards; here or in a store."),
        Use.READS_PHOTOS,
    ],
    out: Annotated[
        Path,
        typer.Option(help="Folder or address for the features; an interrupted run is continued."),
        Use.WRITES_FOLDER,
    ],
    backbone: BackboneOption = DEFAULT,
    views: ViewsOption = 1,
    maps: Annotated[bool, typer.Option("--maps", help="Write feature maps from before the pooling, too.")] = False,
    batch: Annotated[int, typer.Option(help="Images in a batch of the network.")] = 32,
    part_rows: Annotated[int, typer.Option(help="Images in a part; an interrupted run repeats at most one.")] = 4096,
    device: DeviceOption = None,
    engine: Engine = "local",
    address: Address = None,
    json: JsonFile = None,
) -> None:
    """Extract features of images, as Parquet parts."""
    folder = location(out)
    skipped: Counter[str] = Counter()
    files: Iterable[ImageFile] = reporting_skipped(list_images(images, skipped), skipped)
    options = {"views": views, "maps": maps, "part_rows": part_rows, "batch": batch}
    with engine_of(engine, address) as on_ray, bar("images") as progress:
        if not on_ray and isinstance(location(images), Path):
            files = list(files)  # then the bar knows how many there are
        done = extract_images(files, backbone, device, folder, on_ray=on_ray, **options, progress=progress)
    if json is not None:
        failed = [{"id": key, "why": why} for key, why in done.failures]
        write_json(json, {"folder": str(folder), "rows": done.n_rows, "files": done.n_files, "failures": failed})
    report_failures(done.failures)
    earlier = f", {done.n_kept:,} of them by an earlier run" if done.n_kept else ""
    screen().print(f"{done.n_rows:,} of {done.n_files:,} images extracted to {readable(folder)}{earlier}")
    if not done.n_rows:
        raise InputError("none of the images could be read. Look at the reasons above.")


@command(app)
def fit(
    support: SupportFolder,
    out: Annotated[Path, typer.Option(help="The .safetensors file to write."), Use.WRITES_FILE],
    priors: PriorsOption = "backbone",
    backbone: BackboneOption = DEFAULT,
    device: DeviceOption = None,
    reject: RejectOption = REJECT,
    views: ViewsOption = 1,
    unlabelled: Annotated[
        list[Path] | None,
        typer.Option(help="Photos without labels, or a folder of them, to refine the classes with.", readable=False),
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


@command(app)
def add(
    model: ModelFile,
    support: Annotated[
        Path, typer.Argument(help="More photos: a folder for each class, known or new."), Use.READS_PHOTOS
    ],
    backbone: ModelBackbone = None,
    json: JsonFile = None,
) -> None:
    """Add photos of known or new classes to a model."""
    check_folder(model)  # it is replaced
    n_files = len(_list_labelled(support))
    with _locked(model), bar("photos") as progress:
        before = ImageClassifier.load(model, backbone)
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


@command(app)
def predict(
    model: ModelFile,
    photos: Annotated[
        list[Path], typer.Argument(help="Photos, and folders of photos.", readable=False), Use.READS_PHOTOS
    ],
    csv_file: CsvFile = None,
    backbone: ModelBackbone = None,
    views: Annotated[
        int | None, typer.Option(help="Views of each photo; by default as many as of the examples.")
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


@command(app)
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
        bool, typer.Option("--equal", help="All photos are of the classes, about equally many of each.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option(help="Write the model to this .safetensors file."), Use.WRITES_FILE
    ] = None,
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


@command(app)
def explain(
    model: ModelFile,
    photo: Annotated[Path, typer.Argument(help="The photo to explain.")],
    out: Annotated[Path, typer.Option(help="The picture to write, as .png, .svg or .pdf."), Use.WRITES_FIGURE] = Path(
        "explanation.png"
    ),
    backbone: ModelBackbone = None,
    json: JsonFile = None,
) -> None:
    """Show why a photo has its label: the nearest examples and the base classes that pulled them."""
    from p3dc.figures import ExplanationDisplay
    from p3dc.images.explanation import explain as explain_photo

    explanation = explain_photo(ImageClassifier.load(model, backbone), photo)
    ExplanationDisplay(explanation).save(out)
    if json is not None:
        write_json(json, explanation.to_json())
    for line in explanation.lines():
        screen().print(line)
    screen().print(f"Picture: {out}")


def extract_images(
    files: Iterable[ImageFile], backbone: str, device: str | None, out: Location, *, on_ray: bool, **options: Any
) -> "Extraction":
    """Extract here or on Ray."""
    if not on_ray:
        from p3dc.images.extraction import extract as extract_here

        return extract_here(files, load_backbone(backbone, device=device), out, **options)
    from p3dc.cluster.extraction import extract as extract_on_ray

    return extract_on_ray(files, partial(load_backbone, absolute_address(backbone), device=device), out, **options)


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
    _report_skipped(skipped)
    return files


def reporting_skipped(files: Iterable[ImageFile], skipped: Counter[str]) -> Iterator[ImageFile]:
    """Pass images on; after the last, report skipped files."""
    yield from files
    _report_skipped(skipped)


def _report_skipped(skipped: Counter[str]) -> None:
    if skipped:
        listed = ", ".join(f"{readable(ending) or 'no ending'} {count:,}" for ending, count in skipped.most_common(5))
        tell(f"{skipped.total():,} files that do not end like an image are skipped: {listed}")


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
