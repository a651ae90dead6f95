"""The model behind a server: predictions in batches, explanations, and learning on a copy."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property, partial
from typing import Any

import numpy as np

from ..data.csr import CSR
from ..data.vocabulary import name_of, uri_of
from ..estimators import Model, XMLClassifier
from .request_metrics import RequestMetrics

BATCH_SECONDS = 0.001  # one call of the model answers all requests that arrive within this time
MAX_CALL_COST = 1 << 17  # of the texts of one call, about 50 ms: the wait of a short request behind large ones
TEXT_COST, LABEL_COST = 300, 4  # of a text, and of each label asked for; a character costs 1
Suggestions = list[tuple[Any, float]]  # names and probabilities, or scores, of labels, best first


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model, and what a server knows of its labels.

    names_of_uris : the label of each URI of a vocabulary, empty without one. Texts to learn from may name labels by
    their URIs, and suggestions contain the URIs. exclude : int (m,), columns of labels that are never suggested. They
    stay valid when the model learns new labels, whose columns come after all others. folder : the name of the folder
    that holds the model, not of a link to it. loaded : when it was read.
    """

    model: Model
    names_of_uris: Mapping[str, str] = field(default_factory=dict)
    exclude: np.ndarray | None = None
    folder: str = ""
    loaded: datetime = field(default_factory=partial(datetime.now, timezone.utc))

    @cached_property
    def uris(self) -> dict[str, str]:
        """The URI of each name."""
        return {name: uri for uri, name in self.names_of_uris.items()}

    @property
    def micro_threshold(self) -> float | None:
        """Return the threshold for micro F1 (0.5 without held-out rows); None if scores are not probabilities."""
        return float(self.model.thresholds_["micro"]) if self.model.fitted_.has_probabilities else None

    def with_uri(self, label: Any) -> dict[str, Any]:
        """Return a label and, if there is a vocabulary, its URI; None for a label without one."""
        return {"label": label, "uri": uri_of(label, self.uris)} if self.names_of_uris else {"label": label}


@dataclass(eq=False)
class _PendingRequest:
    """A request for suggestions that is not answered yet.

    served : the model that answers all of its texts. n_taken : how many of them calls of the model have taken.
    """

    texts: Sequence[str]
    limit: int
    served: ServedModel
    answer: asyncio.Future[list[Suggestions]]
    n_taken: int = 0
    found: list[Suggestions] = field(default_factory=list)
    costs: list[int] = field(init=False)
    cost_left: int = field(init=False)

    def __post_init__(self) -> None:
        # A text cannot be split. At most half a call, so that the first request always advances, and others fit beside.
        costs = (len(text) + TEXT_COST + LABEL_COST * self.limit for text in self.texts)
        self.costs = [min(cost, MAX_CALL_COST // 2) for cost in costs]
        self.cost_left = sum(self.costs)

    @property
    def batch_key(self) -> tuple[int, ServedModel]:
        """Return the limit and the model, which all requests of one call share."""
        return self.limit, self.served

    def take(self, room: int) -> int:
        """Take texts whose cost fits into the room; return their cost."""
        before = self.cost_left
        while self.n_taken < len(self.texts) and before - self.cost_left + self.costs[self.n_taken] <= room:
            self.cost_left -= self.costs[self.n_taken]
            self.n_taken += 1
        return before - self.cost_left


class Service:
    """Answers the requests of one event loop with the current model.

    name : of the project. token : the secret that a request to learn must show; None turns learning off. save : called
    with each new model.
    """

    def __init__(
        self, served: ServedModel, name: str, token: str | None = None,
        save: Callable[[XMLClassifier], None] | None = None,
    ) -> None:  # fmt: skip
        self.served, self.name, self.token, self.save = served, name, token, save
        self.metrics = RequestMetrics()
        self._waiting: list[_PendingRequest] = []  # the one that has waited longest first
        self._serves_oldest = True  # whether the next call is for the first of them
        self._worker: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._explaining = ThreadPoolExecutor(1)  # of its own, so that many explanations leave threads to suggestions

    @property
    def model(self) -> Model:
        """Return the current model."""
        return self.served.model

    async def suggest(self, served: ServedModel, texts: Sequence[str], limit: int) -> list[Suggestions]:
        """Return the `limit` best labels of each text; one call of the model answers requests that come together."""
        future: asyncio.Future[list[Suggestions]] = asyncio.get_running_loop().create_future()
        pending = _PendingRequest(texts, limit, served, future)
        self._waiting.append(pending)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._answer_waiting())
        try:
            return await future
        except asyncio.CancelledError:  # the request waited too long, or its client left: forget its texts
            self._forget(pending)
            raise

    async def explain(self, served: ServedModel, text: str, limit: int) -> list[dict[str, Any]]:
        """Return the explanations of the `limit` best labels of a text, each with its "probability" or None."""
        arguments = served.model, text, limit, served.exclude
        return await asyncio.get_running_loop().run_in_executor(self._explaining, _explain, *arguments)

    async def learn(self, texts: Sequence[str], labels: Sequence[Sequence[str]]) -> list[str]:
        """Train a copy of the model on texts and their labels, and replace the model by it; return the new labels."""
        async with self._changing:
            names = self.served.names_of_uris
            named = [[name_of(label, names) if names else label for label in row] for row in labels]
            learned = await asyncio.to_thread(_learn_on_copy, self.model, texts, named)
            if self.save is not None:
                await asyncio.to_thread(self.save, learned)
            new: list[str] = learned.classes_[len(self.model.classes_) :].tolist()
            self.served = replace(self.served, model=learned)
            self.metrics.counts["learned_texts"] += len(texts)
            return new

    async def reload(self, load: Callable[[], ServedModel]) -> None:
        """Replace the model by what `load` returns; what was learned and not saved is lost."""
        async with self._changing:
            try:
                self.served = await asyncio.to_thread(load)
            except Exception:
                self.metrics.counts["load_failures"] += 1
                raise
            self.metrics.counts["loads"] += 1

    async def _answer_waiting(self) -> None:
        """Answer all waiting requests, and those that arrive meanwhile."""
        while self._waiting:
            await asyncio.sleep(BATCH_SECONDS)
            if not (batch := self._next_batch()):
                continue
            texts = [text for request, start in batch for text in request.texts[start : request.n_taken]]
            self.metrics.counts["batches"] += 1
            self.metrics.counts["texts"] += len(texts)
            limit, served = batch[0][0].batch_key
            try:
                found = await asyncio.to_thread(_suggest, served.model, texts, limit, served.exclude)
            except Exception as error:  # noqa: BLE001  it is raised where each request waits
                for request, _ in batch:
                    self._forget(request)
                    if not request.answer.done():
                        request.answer.set_exception(error)
                continue
            for request, start in batch:
                n = request.n_taken - start
                request.found += found[:n]
                found = found[n:]
                if len(request.found) == len(request.texts) and not request.answer.done():  # done if it was given up
                    request.answer.set_result(request.found)

    def _next_batch(self) -> list[tuple[_PendingRequest, int]]:
        """Take texts for one call of the model; return their requests, each with the index of its first text.

        All requests of a call have one `batch_key`: the limit determines which labels are scored exactly, and an answer
        must not depend on other requests. The request that has waited longest chooses the key of every other call, so
        that each is answered in the end; the one with the least work left chooses that of the others, so that short
        requests do not wait for large ones. Half of a call goes to the oldest of its requests, the rest to those with
        the least work left.
        """
        if not self._waiting:  # all were given up
            return []
        by_work = sorted(self._waiting, key=lambda each: each.cost_left)
        key = (self._waiting if self._serves_oldest else by_work)[0].batch_key
        self._serves_oldest = not self._serves_oldest
        alike = [each for each in self._waiting if each.batch_key == key]
        starts = [(each, each.n_taken) for each in alike]
        room = MAX_CALL_COST - alike[0].take(MAX_CALL_COST // 2)
        for each in by_work:
            room -= each.take(room) if each.batch_key == key else 0
        self._waiting = [each for each in self._waiting if each.cost_left]
        return [(each, start) for each, start in starts if each.n_taken > start]

    def _forget(self, request: _PendingRequest) -> None:
        """Compute no more texts of a request."""
        self._waiting = [each for each in self._waiting if each is not request]


def _suggest(model: Model, texts: Sequence[str], k: int, exclude: np.ndarray | None) -> list[Suggestions]:
    _, labels, scores = _best(model, texts, k, exclude)
    rows = zip(labels.tolist(), model.classes_[labels].tolist(), scores.tolist(), strict=True)
    return [[(name, score) for label, name, score in zip(*row, strict=True) if label >= 0] for row in rows]


def _explain(model: Model, text: str, k: int, exclude: np.ndarray | None) -> list[dict[str, Any]]:
    X, (labels,), _ = _best(model, [text], k, exclude)
    (row,) = model.explain(X, labels[labels >= 0]) if labels[0] >= 0 else ([],)
    fitted = model.fitted_
    return [
        {**each.to_dict(), "probability": float(fitted.probability(each.score)) if fitted.has_probabilities else None}
        for each in row
    ]


def _best(model: Model, texts: Sequence[str], k: int, exclude: np.ndarray | None) -> tuple[CSR, np.ndarray, np.ndarray]:
    """Return the rows of texts, the columns of their k best labels, and their scores, (n, k); -1 for no label.

    A text without a known word gets no labels: the model would name the most frequent ones, whatever the text says.
    """
    X = model.vectorizer_.rows_of(texts)
    labels, scores = model.predict_topk(X, k, exclude=exclude, proba=model.fitted_.has_probabilities)
    labels[np.diff(X.indptr) == 0] = -1
    return X, labels, scores


def _learn_on_copy(model: Any, texts: Sequence[str], labels: Sequence[Sequence[str]]) -> XMLClassifier:
    learned: XMLClassifier = copy.copy(model)
    learned.partial_fit(list(texts), [list(names) for names in labels])
    learned.load_kernels(list(texts[:1]))  # else the first request would wait for it
    return learned
