"""The command serve."""

import ipaddress
import logging
import socket
import sys
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer
from threadpoolctl import threadpool_limits

from p3dc._validation import check_share
from p3dc.cli.outputs import command
from p3dc.cli.shared import BackboneOption, PriorsOption, RejectOption, app
from p3dc.errors import InputError
from p3dc.images.backbones.loading import DEFAULT, load_backbone
from p3dc.images.classifier import REJECT
from p3dc.priors.prototypes import Priors

LEAST_TOKEN = 16


@command(app)
def serve(
    model: Annotated[Path | None, typer.Argument(help="Model file to start with, from fit or from the page.")] = None,
    project: Annotated[
        Path | None, typer.Option(help="Folder to store everything in; in memory if none is given.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; any but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any free one.", min=0, max=65535)] = 8765,
    token: Annotated[
        str | None, typer.Option(envvar="P3DC_TOKEN", help="Token that requests must carry; best set as P3DC_TOKEN.")
    ] = None,
    priors: PriorsOption = "backbone",
    backbone: BackboneOption = DEFAULT,
    reject: RejectOption = REJECT,
    browser: Annotated[bool, typer.Option(help="Open the page.")] = True,
) -> None:
    """Open a page to teach classes and label photos, and serve the same to programs."""
    listening = _listen(host, port, token)
    with listening:
        served = _application(model, project, priors, backbone, reject, token)
        listening.listen()  # whoever reads the address below can connect
        name = "localhost" if host == "127.0.0.1" else f"[{host}]" if ":" in host else host
        address = f"http://{name}:{listening.getsockname()[1]}/"
        where = "in memory; give --project to keep it" if project is None else f"in {project}"
        typer.echo(f"Serving {address} (project {where}; Ctrl-C stops)")
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
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family)
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


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _application(
    model: Path | None, folder: Path | None, priors: str, backbone: str, reject: float, token: str | None
) -> Any:
    try:
        from p3dc.app.http.server import make_app
        from p3dc.app.project.project import Project
        from p3dc.app.project.state import State
    except ModuleNotFoundError as error:
        raise InputError(f'serve needs {error.name}. Install it: pip install "p3dc-shot[serve]"') from None
    known = priors if priors in ("backbone", "none") else Priors.load(priors)
    opened = Project(folder, load_backbone(backbone), State(reject=check_share("reject", reject or None)), known)
    if model is not None:
        try:
            _begin_with(model, opened)
        except InputError:
            opened.store.close()
            raise
    return make_app(opened, token=token)


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
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(RepeatFilter())
    with threadpool_limits(1, user_api="blas"):  # requests run in parallel; the network has its own threads
        uvicorn.Server(config).run(sockets=[listening])
