"""The command that extracts features of images, and what other commands need of it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from p3dc.cli.outputs import Use, command
from p3dc.cli.review import report_failures, report_skipped
from p3dc.cli.shared import (
    COMPUTING,
    FEATURES,
    NETWORK,
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
from p3dc.evaluation.progress import bar
from p3dc.images.backbones.loading import DEFAULT, absolute_address, load_backbone
from p3dc.images.sources import ImageFile, list_images, readable
from p3dc.io.atomic import write_json
from p3dc.io.store import Location, location

if TYPE_CHECKING:
    from p3dc.images.extraction import Extraction


@command(
    app,
    example="p3dc extract photos/ --out features/",
    page="howto/photos.md",
    panel=FEATURES,
)
def extract(
    images: Annotated[
        Path,
        typer.Argument(help="A folder, a CSV of path and label, or shards; here or in a store."),
        Use.READS_PHOTOS,
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="Folder or address for the features; an interrupted run is continued.", rich_help_panel=OUTPUT
        ),
        Use.WRITES_FOLDER,
    ],
    backbone: BackboneOption = DEFAULT,
    views: ViewsOption = 1,
    maps: Annotated[
        bool, typer.Option("--maps", help="Write feature maps from before the pooling, too.", rich_help_panel=NETWORK)
    ] = False,
    batch: Annotated[
        int | None,
        typer.Option(
            help="Images in a batch of the network. By default 32, and 256 on a GPU.", rich_help_panel=COMPUTING
        ),
    ] = None,
    part_rows: Annotated[
        int,
        typer.Option(help="Images in a part; an interrupted run repeats at most one.", rich_help_panel=COMPUTING),
    ] = 4096,
    device: DeviceOption = None,
    engine: Engine = "local",
    address: Address = None,
    json: JsonFile = None,
) -> None:
    """Extract features of images to Parquet files.

    The features serve evaluate, search, reproduce and priors.
    """
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


def extract_images(
    files: Iterable[ImageFile], backbone: str, device: str | None, out: Location, *, on_ray: bool, **options: Any
) -> "Extraction":
    """Extract here or on Ray."""
    if not on_ray:
        from p3dc.images.extraction import extract as extract_here

        return extract_here(files, load_backbone(backbone, device=device), out, **options)
    from p3dc.cluster.extraction import extract as extract_on_ray

    return extract_on_ray(files, partial(load_backbone, absolute_address(backbone), device=device), out, **options)


def reporting_skipped(files: Iterable[ImageFile], skipped: Counter[str]) -> Iterator[ImageFile]:
    """Pass images on; after the last, report skipped files."""
    yield from files
    report_skipped(skipped)
