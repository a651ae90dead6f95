"""Several classifiers that differ in their seeds, as one: more accurate, for as many times the price."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from ..data.validation import is_positive_integer
from ..errors import DataError, MemoryEstimateError, shorten
from ..training.callbacks import Callback
from ..training.history import EpochRecord
from ..training.runs import run_of
from . import ensemble_saving, memory
from .classifier import XMLClassifier
from .fitting import as_checkpoint, check_callbacks
from .inference.averaging import MeanScorer
from .inputs import learn_words, read_features
from .names import as_names
from .parameters import random_state_of
from .predicting import Predictor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike
    from pathlib import Path

    from ..data.csr import CSR
    from ..training.checkpoints import Checkpoint
    from .names import MappedNames


class Numbering(Callback):
    """Note in every record which classifier it is of, by its `number`."""

    def __init__(self, number: int) -> None:
        self.number = number

    def epoch(self, record: EpochRecord, center: np.ndarray) -> bool:
        """Note the number as "estimator"."""
        record["estimator"] = self.number
        return False


class XMLEnsemble(Predictor, BaseEstimator):
    """Classifiers of the same parameters and rows, each with a seed of its own; scores are the means of theirs.

    A seed decides the network's first weights, the order of rows, and which rows are held out for the blend of a
    shortlist: what one classifier has by luck, the mean has not. Training, prediction and files cost `n_estimators`
    times as much. It predicts and saves as `XMLClassifier` does; `predict_topk` ranks the labels that some classifier
    names among its best 2 k (or 32, of a shortlist 8), and to one that does not name it a label has the last of these
    scores, which is never too low. It cannot learn on.

    Parameters
    ----------
    estimator : the `XMLClassifier` that is cloned, which stays as it is; None for one with default parameters, which
        `set_params(estimator__max_epochs=...)` cannot reach. Its `n_jobs` also holds for prediction.
    n_estimators : how many are trained, one after the other.
    random_state : seed of their seeds; None for the `random_state` of `estimator`.

    Attributes
    ----------
    estimators_, the trained classifiers, without the optimizer's state; classes_, n_features_in_, feature_names_in_,
    vectorizer_ as those of `XMLClassifier`; history_, the records of all, each with the number of its "estimator", from
    0; n_epochs_, of all.
    """

    estimators_: list[XMLClassifier]
    n_features_in_: int

    def __init__(
        self, estimator: XMLClassifier | None = None, n_estimators: int = 3, *, random_state: Any = None
    ) -> None:
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        return XMLClassifier().__sklearn_tags__()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimators_")

    @property
    def history_(self) -> list[dict[str, Any]]:
        """Return the records of all classifiers, one an epoch."""
        return [record for member in self.estimators_ for record in member.history_]

    @property
    def n_epochs_(self) -> int:
        """Return the epochs of all classifiers."""
        return sum(member.n_epochs_ for member in self.estimators_)

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        eval_set: tuple[Any, Any] | None = None,
        *,
        label_names: Sequence[Any] | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: Checkpoint | str | PathLike[str] | None = None,
    ) -> XMLEnsemble:
        """Learn from X (n, F) and the labels y of its rows; return self.

        Arguments and errors are those of `XMLClassifier.fit`; `callbacks` see the runs one after the other, and each
        classifier has a `checkpoint` of its own, from which one that was done only learns its shortlist anew. Where an
        error ends learning, the classifiers that were trained until then are kept, or the first as far as it came;
        where there is none, the ensemble stays what it was.
        """
        self._check_number()
        check_callbacks(callbacks)
        checkpoints = as_checkpoint(checkpoint)
        if checkpoints:
            checkpoints.check_parts()
        if label_names is not None:
            label_names = as_names(label_names, "label_names")  # once, where they come as an iterator
        template, before = self._template(), dict(self.__dict__)
        seeding = template if self.random_state is None else self
        random, seeded = random_state_of(seeding), seeding.random_state is not None
        members: list[XMLClassifier] = []
        try:
            learn_words(self, template.vectorizer, X)
            rows = read_features(self, X, reset=True)
            if isinstance(eval_set, tuple | list) and len(eval_set) == 2:
                eval_set = read_features(self, eval_set[0]), eval_set[1]
            if self.n_estimators > 1:  # its own `fit` looks at one, and reads all labels for that
                self._check_memory(rows, y, eval_set)
            bare = clone(template).set_params(vectorizer=None)  # words are the ensemble's, and not copied for each
            seeds = random.randint(np.iinfo(np.int32).max, size=self.n_estimators)
            for number, seed in enumerate(seeds.tolist()):
                # Where none is given, a run that goes on has the seed that it began with.
                member = clone(bare).set_params(random_state=seed if seeded or not checkpoints else None)
                watching, part = [Numbering(number), *callbacks], checkpoints and checkpoints.part(number)
                try:
                    member.fit(
                        rows, y, sample_weight, eval_set, label_names=label_names, callbacks=watching, checkpoint=part
                    )
                except BaseException as error:
                    if run_of(error) and not members:  # half a classifier is better than none, but not than a whole one
                        members.append(member)
                    raise
                member.optimizer_state_ = None  # as large as the model, or twice that: room for the next
                members.append(member)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            if members:
                self.take(members, members[0]._classes)
            raise
        self.take(members, members[0]._classes)
        if checkpoints:
            checkpoints.done()
        return self

    def estimate_memory(self, X: Any, y: Any, eval_set: tuple[Any, Any] | None = None) -> dict[str, int]:
        """Return the bytes that `fit(X, y)` would take, as `XMLClassifier.estimate_memory` does.

        A part more, "trained", is of the classifiers that are done when the last one is trained, at most; and
        "earlier_model" of those of an earlier `fit`.
        """
        self._check_number()
        probe = clone(self._template())
        parts = probe.estimate_memory(X, y, eval_set)
        parts["earlier_model"] = sum(member._learned_bytes() for member in getattr(self, "estimators_", ()))
        parts["trained"] = (self.n_estimators - 1) * _kept(parts)
        return {**parts, "total": parts["total"] + parts["earlier_model"] + parts["trained"]}

    def save(self, path: str | Path, *, predict_only: bool = True, compact: bool = False) -> None:
        """Write the ensemble to one directory, as `XMLClassifier.save` does; to predict with, whatever `predict_only`.

        Raises `ModelFileError` as that does.
        """
        check_is_fitted(self)
        ensemble_saving.save(self, path, compact)

    @classmethod
    def load(
        cls, path: str | Path, *, verify: bool = True, device: str | None = None, precision: str | None = None
    ) -> XMLEnsemble:
        """Return the ensemble that `save` wrote, memory-mapped; see `XMLClassifier.load`."""
        return ensemble_saving.load(cls, path, verify, device, precision)

    def _template(self) -> XMLClassifier:
        """Return the classifier that is cloned."""
        if self.estimator is None:
            return XMLClassifier()
        if not isinstance(self.estimator, XMLClassifier):
            raise DataError(f"estimator: must be an XMLClassifier or None, got {shorten(self.estimator)}")
        return self.estimator

    def take(self, members: list[XMLClassifier], names: np.ndarray | MappedNames) -> None:
        """Become the ensemble of `members`, trained on the same rows, who share the names of labels."""
        first = members[0]
        self.estimators_, self.n_features_in_, self.network_ = members, first.n_features_in_, first.network_
        self.label_form_, self._classes = first.label_form_, names
        self.label_counts_ = getattr(first, "label_counts_", None)
        self.n_samples_seen_ = getattr(first, "n_samples_seen_", 0)
        for member in members:
            member._classes = names

    def _check_number(self) -> None:
        """Raise `DataError` for a number of classifiers that there cannot be."""
        if not is_positive_integer(self.n_estimators):
            raise DataError(f"n_estimators: must be a positive integer, got {shorten(self.n_estimators)}")

    def _check_memory(self, X: CSR, y: Any, eval_set: Any) -> None:
        """Raise `MemoryEstimateError` where the classifiers together would not fit into memory."""
        parts, allowed = self.estimate_memory(X, y, eval_set), memory.allowed()
        last = parts["total"] - parts["trained"]
        if last <= allowed < parts["total"]:  # where even one is too large, its own `fit` says so
            fitting = 1 + (allowed - last) // _kept(parts)
            raise MemoryEstimateError(
                f"n_estimators: {self.n_estimators} need about {memory.readable(parts['total'])}, more than 80 % of "
                f"the memory; {fitting} fit, and smaller hidden_layer_sizes take less"
            )

    def _scorer(self, X: CSR) -> MeanScorer:
        n_jobs = self._template().n_jobs
        return MeanScorer([member.scorer_on(X, n_jobs) for member in self.estimators_])


def load_model(
    path: str | Path, *, verify: bool = True, device: str | None = None, precision: str | None = None
) -> XMLClassifier | XMLEnsemble:
    """Return the `XMLClassifier` or the `XMLEnsemble` that was saved at `path`, to predict with.

    Arguments and errors are those of `XMLClassifier.load`.
    """
    return ensemble_saving.load_either(XMLEnsemble, path, verify, device, precision)


def _kept(parts: dict[str, int]) -> int:
    """Return the bytes of a trained classifier, at most, of what its training takes by part."""
    return parts["parameters"] + parts["candidates"]
