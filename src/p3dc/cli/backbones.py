"""Commands for networks: backbone export, show and priors."""

from pathlib import Path
from typing import Annotated

import typer

from p3dc.cli.outputs import Use, command, epilog
from p3dc.cli.shared import FEATURES, NETWORK, OUTPUT, JsonFile, app, screen
from p3dc.errors import InputError
from p3dc.io.atomic import check_folder, write_json

backbone = typer.Typer(
    help="Export networks, show them, and take base classes from them.",
    epilog=epilog("p3dc backbone show efficientnet-lite0", "docs/howto/networks.md"),
    no_args_is_help=True,
)
app.add_typer(backbone, name="backbone", rich_help_panel=FEATURES)

Network = Annotated[str, typer.Argument(help="What --backbone takes."), Use.READS]


@command(backbone, example="p3dc backbone export timm:resnet18 --out resnet18/", page="howto/networks.md")
def export(
    network: Annotated[str, typer.Argument(help="timm:NAME, with the name of a network of timm.")],
    out: Annotated[
        Path,
        typer.Option(help="The folder to make, which --backbone then takes.", rich_help_panel=OUTPUT),
        Use.WRITES_FOLDER,
    ],
    pretrained: Annotated[
        bool, typer.Option(help="Fetch trained weights, or make random ones.", rich_help_panel=NETWORK)
    ] = True,
    head: Annotated[bool, typer.Option(help="Keep the last layer, for base classes.", rich_help_panel=NETWORK)] = True,
    seed: Annotated[
        int, typer.Option(help="Seed of the random images that it is checked with.", rich_help_panel=NETWORK)
    ] = 0,
    json: JsonFile = None,
) -> None:
    """Export a network of timm to ONNX with its preprocessing, and check it against torch."""
    check_folder(out)
    try:
        from p3dc.images.backbones.timm_export import export_timm
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise InputError("the export needs torch and timm. Install them: pip install 'p3dc-shot[timm]'.") from None
    cosine = export_timm(network, out, pretrained=pretrained, head=head, seed=seed)
    if json is not None:
        write_json(json, {"network": network, "folder": str(out), "cosine": cosine})
    screen().print(f"{network} exported to {out}: cosine to torch {cosine:.6f} at least")


@command(backbone, example="p3dc backbone show efficientnet-lite0", page="howto/networks.md")
def show(network: Network, json: JsonFile = None) -> None:
    """Show what a network gives, how it preprocesses photos, and its digest."""
    from p3dc.images.backbones.loading import load_backbone

    found = load_backbone(network)
    head = found.head()
    facts = {
        "name": found.name,
        "features": found.n_features,
        "classes": 0 if head is None else len(head.rows),
        "digest": found.digest,
        "preprocessing": found.preprocessing.to_json(),
    }
    if json is not None:
        write_json(json, facts)
    for name, value in facts.items():
        screen().print(f"{name}: {value}")


@command(
    backbone,
    example="p3dc backbone priors net/ photos.safetensors --out head.safetensors",
    page="howto/networks.md",
)
def priors(
    network: Network,
    photos: Annotated[Path, typer.Argument(help="Priors of photos, made with this network; see p3dc priors.")],
    out: Annotated[Path, typer.Option(help="The .safetensors file to write.", rich_help_panel=OUTPUT), Use.WRITES_FILE],
) -> None:
    """Take base classes from a network's last layer, with the geometry of priors that photos gave."""
    from p3dc.images.backbone_priors import backbone_priors
    from p3dc.images.backbones.loading import load_backbone
    from p3dc.priors.prototypes import Priors

    found = backbone_priors(load_backbone(network), Priors.load(photos))
    if found is None:
        raise InputError(f"{network} has no last layer to take classes from. Use the priors of the photos themselves.")
    found.save(out)
    screen().print(f"{found} written to {out}")
