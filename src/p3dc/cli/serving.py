"""The command serve."""

import ipaddress
import logging
import shutil
import socket
import sys
import webbrowser
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from threadpoolctl import threadpool_limits

from p3dc._validation import check_share
from p3dc.cli.outputs import Use, command
from p3dc.cli.shared import CLASSES, OUTPUT, PHOTOS, PRIORS_HELP, REJECT_HELP, BackboneOption, app
from p3dc.errors import InputError
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.backbones.loading import DEFAULT, load_backbone
from p3dc.images.classifier import REJECT
from p3dc.priors.prototypes import Priors

LEAST_TOKEN = 16
LISTENING = "Listening"


@command(app, example="p3dc serve --project my-photos/", page="howto/service.md", panel=PHOTOS)
def serve(
    model: Annotated[Path | None, typer.Argument(help="Model file to start with, from fit or from the page.")] = None,
    project: Annotated[
        Path | None,
        typer.Option(help="Folder to store everything in; by default one of your projects.", rich_help_panel=OUTPUT),
    ] = None,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; any but loopback needs a token.", rich_help_panel=LISTENING),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(help="Port to listen on; 0 for any free one.", min=0, max=65535, rich_help_panel=LISTENING),
    ] = 8765,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="P3DC_TOKEN",
            help="Token that requests must carry; best set as P3DC_TOKEN.",
            rich_help_panel=LISTENING,
        ),
    ] = None,
    priors: Annotated[
        str | None,
        typer.Option(
            help=f"{PRIORS_HELP} By default those of the project; a new one has backbone.",
            rich_help_panel=CLASSES,
        ),
        Use.READS,
    ] = None,
    backbone: BackboneOption = DEFAULT,
    reject: Annotated[
        float | None,
        typer.Option(
            help=f"{REJECT_HELP} By default that of the project; a new one has {REJECT}.",
            rich_help_panel=CLASSES,
        ),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page.", rich_help_panel=LISTENING)] = True,
) -> None:
    """Open a page to teach classes and label photos, and serve the same to programs."""
    listening = _listen(host, port, token)
    with listening:
        served, folder = _application(model, project, priors, backbone, reject, token)
        listening.listen()  # whoever reads the address below can connect
        address = f"http://{_name_of(host)}:{listening.getsockname()[1]}/"
        typer.echo(f"Serving {address} (project in {folder}; Ctrl-C stops)")
        if token is not None:
            typer.echo("Others need the token: the page asks for it, programs send it as a bearer token.")
        if browser and sys.stdout.isatty():
            webbrowser.open(address)
        _run(served, listening)


def _listen(host: str, port: int, token: str | None) -> socket.socket:
    """Bind the port before anything is loaded."""
    if not _is_loopback(host) and token is None:
        raise InputError(
            f"{host} can be reached by others, so it needs a token. Set P3DC_TOKEN to {LEAST_TOKEN} characters or more."
        )
    if token is not None and (len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable()):
        raise InputError(f"the token must be {LEAST_TOKEN} printable ASCII characters or more. Choose another one.")
    try:
        *kind, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(*kind)  # asyncio sends what is written at once only where the protocol is named
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
        except OSError:
            listening.close()
            raise
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{host} port {port} cannot be listened on ({why}). Choose another port or host.") from None
    return listening


def _name_of(host: str) -> str:
    """Return the name under which a browser finds the server: that of this machine where it listens everywhere."""
    if host == "127.0.0.1":
        return "localhost"
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _application(
    model: Path | None, given: Path | None, priors: str | None, backbone: str, reject: float | None, token: str | None
) -> tuple[Any, Path]:
    """Return the application and the folder of its project: the given one, or one of the user's projects."""
    try:
        from p3dc.app.http.server import make_app
        from p3dc.app.project.library import Library, data_folder
        from p3dc.app.project.project import Project
        from p3dc.app.project.state import State
    except ModuleNotFoundError as error:
        raise InputError(f'serve needs {error.name}. Install it: pip install "p3dc-shot[serve]"') from None
    known = priors if priors in (None, "backbone", "none") else Priors.load(priors)
    first = "backbone" if known is None else known
    share = check_share("reject", REJECT if reject is None else reject or None)
    network, start = load_backbone(backbone), State(reject=share)
    library = None
    if given is None:
        library = Library(data_folder(), lambda path: Project(path, network, start, first))
        given = library.folder / _project_name(library.folder, model, network)
    try:
        opened = Project(given, network, start, first)
    except OSError as error:
        raise InputError(f"{given} cannot be made ({error.strerror}). Give another folder with --project.") from None
    try:
        if model is not None:
            _begin_with(model, opened)
        if known is not None:
            name = opened.keep_priors(known)
            opened.change("Other priors", lambda state: replace(state, priors=name))
        if reject is not None:
            opened.change("Share of unknown", lambda state: state.with_reject(share))
    except InputError:
        opened.close()
        if model is not None and library is not None:  # it was made for the model
            shutil.rmtree(given)
        raise
    return make_app(opened, token=token, library=library), given


def _project_name(folder: Path, model: Path | None, backbone: Backbone) -> str:
    """Choose the project to begin with: a new one for a model, and one for each backbone otherwise."""
    if model is None:
        return "photos" if backbone.name == DEFAULT else f"photos {backbone.digest[:8]}"
    names = (f"{model.stem[:40]} {number}" if number > 1 else model.stem[:40] for number in count(1))
    return next(name for name in names if not (folder / name).exists())


def _begin_with(model: Path, project: Any) -> None:
    """Load a model file into a new project."""
    from p3dc.app.project.model_files import load_model
    from p3dc.app.project.store import StoreError

    if project.state.classes or project.state.photos:
        folder = project.store.folder
        raise InputError(f"{folder} holds a project already. Leave {model} out, or choose another folder.")
    try:
        load_model(project, model)
    except StoreError:
        raise
    except InputError as error:
        raise InputError(f"{model}: {error}") from None


def _run(served: Any, listening: socket.socket) -> None:
    import uvicorn

    from p3dc.app.http.connections import BoundedProtocol, RepeatFilter

    config = uvicorn.Config(
        served,
        http=BoundedProtocol,
        backlog=128,  # so many connections are accepted before any is closed
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=10,
        ws="none",
    )
    for name in ("uvicorn.error", "asyncio", "python_multipart.multipart"):
        logging.getLogger(name).addFilter(RepeatFilter())
    with threadpool_limits(1, user_api="blas"):  # requests run in parallel; the network has its own threads
        server = uvicorn.Server(config)
        stopped_by = list[int]()
        handle = server.handle_exit

        def remember(number: int, frame: FrameType | None) -> None:
            stopped_by.append(number)
            handle(number, frame)

        server.handle_exit = remember  # type: ignore[assignment, method-assign]
        server.run(sockets=[listening])
        if stopped_by:  # uvicorn raises the signal again, but nothing follows where it was ignored before
            raise typer.Exit(128 + stopped_by[0])
