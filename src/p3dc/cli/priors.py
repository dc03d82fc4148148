"""The command that makes priors: from features, from photos, or from other priors."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from p3dc._arrays import Progress
from p3dc.cli.extraction import extract_images, reporting_skipped
from p3dc.cli.outputs import Use, check_outputs, command
from p3dc.cli.review import report_failures
from p3dc.cli.shared import (
    CLASSES,
    FEATURES,
    OUTPUT,
    Address,
    BackboneOption,
    DeviceOption,
    Engine,
    JsonFile,
    ViewsOption,
    app,
    engine_of,
    screen,
)
from p3dc.errors import InputError
from p3dc.evaluation.executors import step_progress
from p3dc.evaluation.progress import changing_bar
from p3dc.features import stream_features, stream_keyed
from p3dc.images.backbones.loading import DEFAULT
from p3dc.images.central_photos import with_thumbnails
from p3dc.images.extraction import discard, is_finished
from p3dc.images.shards import has_images
from p3dc.images.sources import ImageFile, list_images, readable
from p3dc.io.atomic import write_json
from p3dc.io.store import Location, location
from p3dc.priors.prototypes import Priors


@command(
    app,
    example="p3dc priors base.npz --out priors.safetensors\np3dc priors pile/ --unlabelled --out priors.safetensors",
    page="howto/photos.md",
    panel=FEATURES,
)
def priors(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="SOURCE...",
            help="Photos (a folder for each class, a CSV of path and label, or shards), features, or priors to merge.",
        ),
        Use.READS_PHOTOS,
    ],
    out: Annotated[Path, typer.Option(help="The .safetensors file to write.", rich_help_panel=OUTPUT), Use.WRITES_FILE],
    unlabelled: Annotated[
        bool,
        typer.Option(
            "--unlabelled", help="Ignore labels, and average clusters of all rows instead.", rich_help_panel=CLASSES
        ),
    ] = False,
    backbone: BackboneOption = DEFAULT,
    views: ViewsOption = 1,
    device: DeviceOption = None,
    features: Annotated[
        Path | None,
        typer.Option(
            help="Keep the features of photos in this folder; by default they are removed in the end if they are new.",
            rich_help_panel=OUTPUT,
        ),
        Use.WRITES_FOLDER,
    ] = None,
    engine: Engine = "local",
    address: Address = None,
    json: JsonFile = None,
) -> None:
    """Make base classes: the means of labelled classes, or of clusters of photos without labels.

    Several sources are merged. The features of photos are written to a folder next to the priors first, and an
    interrupted run is continued.
    """
    if out.suffix != ".safetensors":
        raise InputError(f"{out} ends in {out.suffix!r}. Priors are written as .safetensors.")
    for path in sources if unlabelled else ():
        if path.suffix == ".safetensors":
            raise InputError(f"{path} holds priors, which have no rows to cluster. Merge them without --unlabelled.")
    photos = _list_photos([path for path in sources if _has_photos(path)], unlabelled)
    files = [path for path in sources if not _has_photos(path)]
    kept = features or out.with_suffix(".features")
    finished = is_finished(kept)  # by an earlier command, so it stays
    if photos:
        check_outputs({Use.READS_PHOTOS: map(location, sources), Use.WRITES_FOLDER: [location(kept)]})
    with engine_of(engine, address) as on_ray, changing_bar() as begin:
        if photos:
            done = extract_images(photos, backbone, device, kept, on_ray=on_ray, views=views, progress=begin("images"))
            report_failures(done.failures)
            if not done.n_rows:
                raise InputError("none of the photos could be read. Look at the reasons above.")
            files.append(kept)
        progress = begin("parts" if on_ray else "rows")
        if unlabelled:
            found = with_thumbnails(_average_unlabelled(files, on_ray, progress), photos)
        else:
            steps = (step_progress(progress, step, len(files)) for step in range(len(files)))
            found = Priors.merge(_average(path, on_ray, step) for path, step in zip(files, steps, strict=True))
    found.save(out)
    if photos and features is None and not finished:
        discard(kept)
    rows = 0 if found.counts is None else int(found.counts.sum())
    screen().print(f"{found} from {rows:,} rows, written to {out}")
    if json is not None:
        facts = {"classes": len(found), "features": found.prototypes.shape[1], "rows": rows, "file": str(out)}
        write_json(json, facts)


def _has_photos(path: Path) -> bool:
    place = location(path)
    if place.is_dir():
        parts: Iterator[Location] = iter(place.rglob("*.parquet"))
        return all(map(has_images, islice(parts, 1)))
    ending = place.suffix.lower()
    return ending in (".csv", ".tar", ".zip") or (ending == ".parquet" and place.exists() and has_images(place))


def _list_photos(sources: list[Path], unlabelled: bool) -> list[ImageFile]:
    """List the photos of all sources, labelled ones unless labels are ignored; report skipped files."""
    skipped: Counter[str] = Counter()
    listed = [file for path in sources for file in reporting_skipped(list_images(path, skipped), skipped)]
    bare = next((file for file in listed if file.label is None), None)
    if bare is not None and not unlabelled:
        raise InputError(
            f"{bare.key} has no class. Put the photos of each class into a folder, or give --unlabelled to average "
            "clusters."
        )
    return listed if len(sources) < 2 else [replace(file, key=readable(file.path)) for file in listed]


def _average(path: Path, on_ray: bool, progress: Progress | None) -> Priors:
    """Average features without holding them all."""
    if path.suffix == ".safetensors":
        return Priors.load(path)
    if not on_ray:
        return Priors.from_batches((rows, labels) for rows, labels, _ in stream_features(path, progress=progress))
    from p3dc.cluster.priors import average

    return average(path, progress)


def _average_unlabelled(paths: list[Path], on_ray: bool, progress: Progress | None) -> Priors:
    """Average clusters of the rows of all files, without holding them all."""
    if on_ray:
        from p3dc.cluster.priors import average_unlabelled

        return average_unlabelled(paths, progress)
    steps = (step_progress(progress, step, 2 * len(paths)) for step in range(2 * len(paths)))  # there are two passes
    return Priors.from_unlabelled(
        lambda: (batch for path in paths for batch in stream_keyed(path, progress=next(steps)))
    )
