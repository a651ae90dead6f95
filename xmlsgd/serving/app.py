"""The routes of a server: Annif's suggest, batches, explanations, learning, health, metrics, and a page."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from http import HTTPStatus
from importlib.resources import files
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ..errors import LOGGER, DataError, ModelFileError, in_one_line
from . import requests
from .connections import MAX_CONNECTIONS
from .requests import RequestError
from .service import Service, Suggestions

Handler = Callable[[Service, Request], Awaitable[Any]]  # returns what becomes JSON, or a response
T = TypeVar("T")

ANSWER_SECONDS = 30.0  # limit for an answer; learning has none
CLIENT_LEFT = 499  # nginx's status of a request that got no answer, as its client closed the connection
ANNIF = "/v1/projects"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


def new_app(service: Service, most_requests: int = MAX_CONNECTIONS) -> Starlette:
    """Return the application. It answers 503 to a request that would be number `most_requests` of those pending."""
    routes = [
        Route(route, _guarded(service, path, handler, seconds), methods=[method])
        for method, path, handler, seconds in (
            ("GET", "/", page, ANSWER_SECONDS),
            ("GET", "/health", health, ANSWER_SECONDS),
            ("GET", "/metrics", metrics, ANSWER_SECONDS),
            ("GET", ANNIF, projects, ANSWER_SECONDS),
            ("GET", f"{ANNIF}/{{id}}", project, ANSWER_SECONDS),
            ("POST", f"{ANNIF}/{{id}}/suggest", annif_suggest, ANSWER_SECONDS),
            ("POST", "/suggest", suggest, ANSWER_SECONDS),
            ("POST", "/explain", explain, ANSWER_SECONDS),
            ("POST", "/learn", learn, None),
        )
        for route in {path, f"{path.rstrip('/')}/"}
    ]

    async def unknown(_: Request, error: Any) -> Response:
        service.metrics.record("other", error.status_code, 0.0)
        return _problem(error.status_code, f"{error.detail}; GET / shows a page", error.headers)

    app = Starlette(routes=routes, exception_handlers={HTTPException: unknown})
    app.router.redirect_slashes = False  # the address would lack the path that a proxy has taken off
    app.state.pending_bytes = Counter[Request]()  # bytes of the body; its keys are all pending requests
    app.state.most_requests = most_requests
    return app


def _guarded(service: Service, path: str, handler: Handler, seconds: float | None) -> Any:
    """Return the endpoint of a handler: it turns errors into JSON, limits the time to `seconds`, counts requests."""

    async def answer(request: Request) -> Response:
        try:
            found = await asyncio.wait_for(handler(service, request), seconds)
        except RequestError as error:
            return _problem(error.status, str(error), {"WWW-Authenticate": "Bearer"} if error.status == 401 else None)
        except DataError as error:
            return _problem(400, str(error))
        except ClientDisconnect:
            return Response(status_code=CLIENT_LEFT)
        except RecursionError:
            return _problem(400, "body: is nested too deeply; send fewer levels")
        except asyncio.TimeoutError:
            return _problem(503, f"no answer within {ANSWER_SECONDS:g} s; send fewer texts, or try again later")
        except Exception as error:  # noqa: BLE001  logged
            LOGGER.error("%s: %s", path, in_one_line(error), exc_info=error)
            return _problem(500, f"internal error: {type(error).__name__}; the log of the server says more")
        return found if isinstance(found, Response) else JSONResponse(found)

    async def endpoint(request: Request) -> Response:
        started = time.perf_counter()
        state = request.app.state
        state.pending_bytes[request] = 0
        try:
            if len(state.pending_bytes) < state.most_requests:
                response = await answer(request)
            else:
                text = "server busy: too many requests wait for answers; try again later"
                response = _problem(503, text, {"Connection": "close"})
        finally:  # also if the request is cancelled
            del state.pending_bytes[request]
        service.metrics.record(path, response.status_code, time.perf_counter() - started)
        return response

    return endpoint


async def _unless_left(request: Request, answer: Coroutine[Any, Any, T]) -> T:
    """Return an answer to a request whose body was read; if the client leaves, cancel it and raise an error."""

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    answering, leaving = asyncio.create_task(answer), asyncio.create_task(left())
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise ClientDisconnect
        return answering.result()
    finally:
        answering.cancel()
        leaving.cancel()


def _problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error as JSON (RFC 9457), as Annif does."""
    body = {"status": status, "title": HTTPStatus(status).phrase, "detail": detail}
    return JSONResponse(body, status, headers, media_type="application/problem+json")


async def page(service: Service, request: Request) -> Response:
    """Return the web page on which a user tries the model; it sends its requests to `/explain`."""
    return HTMLResponse(files(__package__).joinpath("page.html").read_text(encoding="utf-8"), headers=HEADERS)


async def health(service: Service, request: Request) -> dict[str, Any]:
    """Say that the server is up, and describe its model."""
    served, model = service.served, service.model
    return {
        "status": "ok", "project": service.name, "labels": len(model.classes_), "learns": service.token is not None,
        "scores": "probability" if model.fitted_.has_probabilities else "score",
        "model": served.folder, "loaded": served.loaded.isoformat(timespec="seconds"),
    }  # fmt: skip


async def metrics(service: Service, request: Request) -> Response:
    """Return the counts for Prometheus."""
    return PlainTextResponse(service.metrics.text(), media_type="text/plain; version=0.0.4")


async def projects(service: Service, request: Request) -> dict[str, Any]:
    """List the one project of this server, as Annif lists all of its own."""
    return {"projects": [_description(service)]}


async def project(service: Service, request: Request) -> dict[str, Any]:
    """Describe the project, as Annif does."""
    _check_project(service, request)
    return _description(service)


async def annif_suggest(service: Service, request: Request) -> dict[str, Any]:
    """Suggest labels for the text of a form, as Annif does; a label without a URI takes the place of its URI."""
    _check_project(service, request)
    form = requests.form_of(await requests.read_body(request, requests.FORM))
    served = service.served  # another may be loaded before the answer
    text = requests.text_of(form.get("text"))
    limit = requests.limit_of(form.get("limit"))
    threshold = requests.threshold_of(form.get("threshold"), served.micro_threshold)
    (found,) = await _unless_left(request, service.suggest(served, [text], limit))
    results = []
    for label, score in _above(found, threshold):
        uri = served.with_uri(label).get("uri") or str(label)
        results.append({"uri": uri, "label": str(label), "notation": None, "score": score})
    return {"results": results}


async def suggest(service: Service, request: Request) -> dict[str, Any]:
    """Suggest labels for each of several texts."""
    body = await requests.read_json(request, "texts", "limit", "threshold")
    served = service.served
    texts = requests.texts_of(body.get("texts"))
    limit = requests.limit_of(body.get("limit"), len(texts))
    threshold = requests.threshold_of(body.get("threshold"), served.micro_threshold)
    found = await _unless_left(request, service.suggest(served, texts, limit))
    rows = [_above(row, threshold) for row in found]
    return {"results": [[{**served.with_uri(label), "score": score} for label, score in row] for row in rows]}


async def explain(service: Service, request: Request) -> dict[str, Any]:
    """Explain the scores of the best labels of a text."""
    body = await requests.read_json(request, "text", "limit")
    served = service.served
    text = requests.text_of(body.get("text"))
    limit = requests.limit_of(body.get("limit"), most=requests.MAX_EXPLAINED)
    explained = await _unless_left(request, service.explain(served, text, limit))
    results = [each | served.with_uri(each["label"]) for each in explained]
    return {"results": results, "analyzer": served.model.vectorizer_.analyzer}


async def learn(service: Service, request: Request) -> dict[str, Any]:
    """Learn from texts and their labels; answer as soon as the new model makes the suggestions."""
    if service.token is None:
        raise RequestError(403, "learning is off; start the server with a token in XMLSGD_TOKEN")
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode("latin-1"), service.token.encode()):
        raise RequestError(401, "Authorization: must be 'Bearer TOKEN' with the token of the server")
    texts, labels = requests.documents_of((await requests.read_json(request, "documents")).get("documents"))
    try:
        new = await service.learn(texts, labels)
    except ModelFileError as error:  # another process has changed the folder
        text = f"{error}; nothing was learned: send SIGHUP to the server, which loads it"
        raise RequestError(409, text) from error
    return {"learned": len(texts), "labels": len(service.model.classes_), "new_labels": new}


def _above(found: Suggestions, threshold: float) -> Suggestions:
    """Return the suggestions with at least this score; all for threshold 0, as log odds may be negative."""
    return [(label, score) for label, score in found if threshold == 0 or score >= threshold]


def _description(service: Service) -> dict[str, Any]:
    return {
        "project_id": service.name, "name": service.name, "language": None, "is_trained": True,
        "backend": {"backend_id": "xmlsgd"},
    }  # fmt: skip


def _check_project(service: Service, request: Request) -> None:
    """Refuse the name of another project."""
    if request.path_params["id"] != service.name:
        raise RequestError(404, f"project: must be {service.name!r}, got {request.path_params['id']!r}")
