"""Read and check requests: bodies of limited size, read in limited time, and fields of known types."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect, Request

from ..data.label_names import label_name
from ..data.validation import is_integer, is_number
from ..errors import shorten, suggest

MAX_BYTES = 4 << 20  # of a body
MAX_TEXTS = 1024  # of a request
MAX_CHARACTERS = 1 << 18  # of a text: one is one call of the model, for which all other requests wait
MAX_PENDING_BYTES = 64 << 20  # of the bodies of all unanswered requests; as texts they may take four times as much
MAX_LIMIT = 1000  # labels of a text
MAX_SUGGESTIONS = 100_000  # labels of all texts of a request
MAX_EXPLAINED = 50  # labels of an explanation, which lists all words of the text for each
DEFAULT_LIMIT = 10  # as in Annif
MAX_NAME = 1000  # characters of a label to learn: every answer that suggests it contains them
BODY_SECONDS = 10.0  # limit for a body to arrive
BREAKS = frozenset("\t\n\r\0")  # characters that the name of a label must not contain
FORM, JSON = "application/x-www-form-urlencoded", "application/json"


class RequestError(Exception):
    """A request is answered with an error: its HTTP status, and a text that says what is wrong."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


async def read_body(request: Request, media_type: str) -> bytes:
    """Return the body; raise `RequestError` if it is too large, too slow or of another type, or the server is busy."""
    got = request.headers.get("content-type", media_type).partition(";")[0].strip().lower()
    if got != media_type:
        raise RequestError(415, f"Content-Type: must be {media_type}, got {shorten(got)}")
    if (encoding := request.headers.get("content-encoding", "identity").lower()) != "identity":
        raise RequestError(415, f"Content-Encoding: must be absent, got {shorten(encoding)}; send an uncompressed body")
    chunks: list[bytes] = []
    pending = request.app.state.pending_bytes

    async def read() -> None:
        async for chunk in request.stream():
            pending[request] += len(chunk)
            if pending[request] > MAX_BYTES:
                raise RequestError(413, f"body: must have at most {MAX_BYTES} bytes; send fewer texts")
            if pending.total() > MAX_PENDING_BYTES:
                raise RequestError(503, "server busy: too many requests wait for answers; try again later")
            chunks.append(chunk)

    try:
        await asyncio.wait_for(read(), BODY_SECONDS)
    except asyncio.TimeoutError:
        raise RequestError(408, f"body: must arrive within {BODY_SECONDS:g} s; send fewer texts") from None
    except ClientDisconnect:
        raise RequestError(400, "body: is incomplete, the client has left; send it again") from None
    return b"".join(chunks)


async def read_json(request: Request, *fields: str) -> dict[str, Any]:
    """Read the body and return its JSON object; raise `RequestError` if it has others than the given fields."""
    found = json_of(await read_body(request, JSON))
    for name in found:
        if name not in fields:  # one that was mistyped would change nothing, unnoticed
            wanted = f"body: must have no fields but {', '.join(fields)}"
            raise RequestError(400, f"{wanted}, got {shorten(name)}{suggest(name, fields)}")
    return found


def json_of(body: bytes) -> dict[str, Any]:
    """Parse a body as a JSON object."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise RequestError(400, f"body: must be JSON, got {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise RequestError(400, f"body: must be a JSON object, got {shorten(found)}")
    return found


def form_of(body: bytes) -> dict[str, str]:
    """Parse a body as a form; return its fields, the last value of each."""
    try:
        fields = parse_qs(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=16)
    except ValueError as error:
        raise RequestError(400, f"body: must be a form in UTF-8, got {' '.join(str(error).split())}") from None
    return {name: values[-1] for name, values in fields.items()}


def limit_of(value: Any, n_texts: int = 1, most: int = MAX_LIMIT) -> int:
    """Return the field "limit", the number of labels per text; value : from JSON or a form, None for the default."""
    most = min(most, MAX_SUGGESTIONS // n_texts)
    limit = _number(value, DEFAULT_LIMIT, int)
    if not is_integer(limit) or not 1 <= limit <= most:
        texts = f" for {n_texts} texts" if n_texts > 1 else ""
        raise RequestError(400, f"limit: must be an integer from 1 to {most}{texts}, got {shorten(value)}")
    return limit


def threshold_of(value: Any, micro: float | None) -> float:
    """Return the field "threshold", the lowest score to return.

    value : from JSON or a form, None for 0. micro : the learned threshold that "micro" stands for; None if scores are
    not probabilities, and can have no threshold but 0.
    """
    threshold = micro if value == "micro" and micro is not None else _number(value, 0.0, float)
    if micro is None and (value == "micro" or (is_number(threshold) and threshold > 0)):
        raise RequestError(400, "threshold: needs a probability of each label by itself, which this model lacks")
    if not is_number(threshold) or not 0 <= threshold <= 1:
        raise RequestError(400, f"threshold: must be a number from 0 to 1 or 'micro', got {shorten(value)}")
    return float(threshold)


def _number(value: Any, default: float, kind: type[int] | type[float]) -> Any:
    """Convert the text of a form's field to a number; return `default` for None, and any other value unchanged."""
    try:
        return default if value is None else kind(value) if isinstance(value, str) else value
    except ValueError:
        return value


def text_of(value: Any) -> str:
    """Return the text of a request."""
    if not isinstance(value, str):
        raise RequestError(400, f"text: must be a string, got {shorten(value)}")
    return _checked_length(value, "text")


def _checked_length(text: str, field: str) -> str:
    """Return the text; raise `RequestError` if it is too long."""
    if len(text) > MAX_CHARACTERS:
        wanted = f"{field}: a text must have at most {MAX_CHARACTERS:,} characters"
        raise RequestError(400, f"{wanted}, got {len(text):,}; send its beginning")
    return text


def texts_of(value: Any) -> list[str]:
    """Return the texts of a request."""
    if not _is_list_of(str, value):
        raise RequestError(400, f"texts: must be a list of 1 to {MAX_TEXTS} strings, got {shorten(value)}")
    return [_checked_length(text, "texts") for text in value]


def _is_list_of(kind: type, value: Any) -> bool:
    return isinstance(value, list) and 1 <= len(value) <= MAX_TEXTS and all(isinstance(each, kind) for each in value)


def documents_of(value: Any) -> tuple[list[str], list[list[str]]]:
    """Return the texts and the labels to learn from."""
    if not _is_list_of(dict, value):
        wanted = f'must be a list of 1 to {MAX_TEXTS} {{"text": ..., "labels": [...]}}'
        raise RequestError(400, f"documents: {wanted}, got {shorten(value)}")
    if others := {name for each in value for name in each} - {"text", "labels"}:
        raise RequestError(400, f"documents: must have no fields but text and labels, got {shorten(min(others))}")
    labels = [each.get("labels") for each in value]
    for names in labels:
        if not isinstance(names, list) or not names or not all(_is_name(name) for name in names):
            wanted = "must be a list of names, at least one, none empty or with tabs or line ends"
            wanted += f", of at most {MAX_NAME} characters"
            raise RequestError(400, f"labels: {wanted}, got {shorten(names)}")
    return [text_of(each.get("text")) for each in value], [list(map(label_name, names)) for names in labels]


def _is_name(value: Any) -> bool:
    """Return whether a value may be the name of a label."""
    return isinstance(value, str) and len(value) <= MAX_NAME and bool(value.strip()) and BREAKS.isdisjoint(value)
