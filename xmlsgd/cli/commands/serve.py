"""Serve a model that was trained on text: suggestions, explanations and a web page, over HTTP.

GET / shows a web page. POST /v1/projects/NAME/suggest answers as Annif does, where NAME is the folder's name. POST
/suggest takes {"texts": [...], "limit": 10, "threshold": 0}, POST /explain {"text": ..., "limit": 5}. GET /health and
GET /metrics are for monitoring. With a token in the environment variable XMLSGD_TOKEN, POST /learn takes {"documents":
[{"text": ..., "labels": [...]}]} and adds them to the model; --save also writes it to DIR.

SIGHUP loads the model in DIR again, after `train --overwrite` has replaced it, for example; the earlier one answers
until then.

Needs starlette and uvicorn: pip install "xmlsgd[serve]".
"""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import DataError, ModelFileError, optional_module, warn
from ..exit_codes import UsageError, exit_code_and_text
from ..flags import DIR, EXCLUDE, INT, NAME, Flag, positional
from ..messages import Console, say
from ..model_folder import manifest_of, save_without_history, saved_names, unchanged
from ..models import read_learner, read_predictor
from ..output_files import check_folder
from ..parameters import parameter_flags

if TYPE_CHECKING:
    from ...estimators import XMLClassifier
    from ...serving.service import ServedModel

TOKEN = "XMLSGD_TOKEN"
FLAGS = (
    positional("model", DIR, "DIR", "folder of the model"),
    *parameter_flags("precision", "n_jobs"),
    Flag("host", NAME, "address to listen on", "server", "127.0.0.1"),
    Flag("port", INT, "port to listen on, 0 for any that is free", "server", 8000),
    EXCLUDE,
    Flag("save", None, "write the model to DIR whenever it has learned", "server"),
)  # fmt: skip
EXAMPLES = """  xmlsgd serve model
  XMLSGD_TOKEN=change-me-please xmlsgd serve model --port 9000 --save"""
GRACE_SECONDS = 30  # for requests that are not answered when a signal arrives
MIN_TOKEN = 8  # characters
MANY_TEXTS = ["a text"] * 16  # so many texts in one call run other kernels than a few


def run(
    model: str, parameters: dict[str, Any], host: str, port: int, exclude: str | None, save: bool, console: Console
) -> None:
    """Load, bind, serve until a signal."""
    with hangups_noted() as hangup:  # before imports, which take a second
        _, uvicorn = optional_module("starlette", "serve"), optional_module("uvicorn", "serve")
        token = read_token()
        if save and token is None:
            raise UsageError(f"--save: needs a token in {TOKEN}, without which nothing is learned")
        if save:
            check_folder(model, flag="--save:")
        from ...serving.app import new_app
        from ...serving.connections import WAIT_SECONDS, Connection, most_connections
        from ...serving.service import Service

        folder = ServedFolder(model, parameters, exclude, learns=token is not None)
        name = Path(os.path.abspath(model)).name  # a link has a name of its own, whichever model it leads to
        service = Service(folder.load(), name, token, folder.save if save else None)
        limit = most_connections()
        app = new_app(service, limit)
        listening = listening_socket(host, port)
        load_kernels(service.served)
        gc.freeze()  # or a full collection would visit all objects of Numba and scikit-learn; answers would wait 0.1 s
        address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        console.show(f"serving {name} at {address}")
        if not is_loopback(host):
            warn(f"--host {host}: others can reach it, without TLS; put a proxy before it")
        config = uvicorn.Config(  # logs only errors, as a line for each malformed request could fill a disk
            app, log_level="error", access_log=False, lifespan="off", http=Connection, ws="none",
            limit_concurrency=limit, timeout_graceful_shutdown=GRACE_SECONDS,
            timeout_keep_alive=int(WAIT_SECONDS),  # or uvicorn would close idle connections earlier
        )  # fmt: skip

        async def reload() -> None:
            try:
                await service.reload(lambda: folder.load(load_kernels))
                console.show(f"serving {name} as {model} has it now")
            except Exception as error:  # noqa: BLE001  after any error, keep the model that is served
                say(f"{exit_code_and_text(error)[1]}; the model that was loaded before goes on")

        asyncio.run(_serve(uvicorn.Server(config).serve(sockets=[listening]), reload, hangup))


class ServedFolder:
    """The folder of the model that is served; the arguments are those of `read_served`."""

    def __init__(self, folder: str, parameters: dict[str, Any], exclude: str | None, learns: bool) -> None:
        self.folder = folder
        self._read = partial(read_served, folder, parameters, exclude, learns)
        self._manifest = b""  # of the model that is served

    def load(self, prepare: Callable[[ServedModel], None] | None = None) -> ServedModel:
        """Return the model in the folder after `prepare(model)`; if either fails, `save` does not replace it."""
        manifest = manifest_of(self.folder)
        served = self._read()
        if prepare is not None:
            prepare(served)
        self._manifest = manifest
        return served

    def save(self, model: XMLClassifier) -> None:
        """Replace the model by one that has learned more; raise `ModelFileError` if another process replaces it."""
        with unchanged(self.folder, self._manifest):
            save_without_history(model, self.folder, self.folder)
            self._manifest = manifest_of(self.folder)


def read_served(folder: str, parameters: dict[str, Any], exclude: str | None, learns: bool) -> ServedModel:
    """Return the model in a folder, with the names of its labels and the labels that must not be suggested.

    learns : whether the model must be able to learn more rows.
    """
    from ...serving.service import ServedModel
    from ..line_files import read_excluded

    name = Path(folder).resolve().name  # before reading: a link that changes meanwhile is followed by a SIGHUP
    try:
        model = read_learner(folder, parameters) if learns else read_predictor(folder, parameters)
    except (DataError, ModelFileError) as error:
        if not learns:
            raise
        read_predictor(folder, parameters)  # raises the error of a damaged model
        raise UsageError(f"{error}; or unset {TOKEN}, to serve it as it is") from error
    if getattr(model, "vectorizer_", None) is None:
        raise UsageError(f"{folder}: must be trained on text, got a model of numeric features")
    names_of_uris = saved_names(folder) or {}
    return ServedModel(model, names_of_uris, read_excluded(exclude, model, names_of_uris), name)


@contextmanager
def hangups_noted() -> Iterator[asyncio.Event]:
    """Let SIGHUP set the yielded event: it would end a server that is not ready to load the model again."""
    hangup = asyncio.Event()
    before = signal.getsignal(signal.SIGHUP)
    if not sys.stdin.isatty() and before != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: hangup.set())
    try:
        yield hangup
    finally:
        signal.signal(signal.SIGHUP, before)


async def _serve(serving: Awaitable[None], reload: Callable[[], Awaitable[None]], hangup: asyncio.Event) -> None:
    """Serve until a signal; SIGHUP loads the model again, unless it means that the terminal was closed.

    Any number of SIGHUPs during a load causes one more load, as files may have changed after they were read. hangup :
    is set by each; it may be set already.
    """

    async def reload_after_hangups() -> None:
        while await hangup.wait():
            hangup.clear()
            await reload()

    reloading = asyncio.create_task(reload_after_hangups())
    if sys.stdin.isatty():
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # an exception would be raised inside any request
    elif signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hangup.set)
    await serving
    reloading.cancel()


def load_kernels(served: ServedModel) -> None:
    """Compile or load all kernels that answer requests, single or many."""
    served.model.load_kernels(MANY_TEXTS)
    served.model.explain(MANY_TEXTS[:1])


def read_token() -> str | None:
    """Return the token in the environment, or None."""
    token = os.environ.get(TOKEN)
    if token is not None and (len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable()):
        got = f"{len(token)} characters" if len(token) < MIN_TOKEN else "others"
        raise UsageError(f"{TOKEN}: must be {MIN_TOKEN} or more printable ASCII characters, got {got}")
    return token


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise `UsageError` if the address is in use, or not of this machine."""
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if number is not None and number > 0 else str(error).rstrip(".")
        raise UsageError(f"--host {host} --port {port}: {reason}; pass another") from error
    # Headers and body are two packets. Without TCP_NODELAY, the second waits 40 ms for the first to be acknowledged.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
