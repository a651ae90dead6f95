"""An ensemble of classifiers that differ in their seeds: more accurate, for several times the cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from os import PathLike
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone

from ..data.csr import CSR
from ..data.validation import is_positive_integer
from ..errors import DataError, MemoryEstimateError, shorten
from ..training.callbacks import Callback
from ..training.checkpoints import Checkpoint
from ..training.history import EpochRecord
from . import memory, saving
from .calibration import BetaCalibration
from .classifier import XMLClassifier
from .fitting import as_checkpoint, check_callbacks
from .inference.rankings import MeanScorer
from .parameters import random_state_of
from .plan import TrainingPlan
from .predicting import Predictor
from .thresholds import Thresholds
from .training_data import GivenRows, TrainingData


class EstimatorNumber(Callback):
    """Add to each epoch record the `number` of its classifier."""

    def __init__(self, number: int) -> None:
        self.number = number

    def epoch(self, record: EpochRecord, center: np.ndarray) -> bool:
        """Add the number as "estimator"."""
        record["estimator"] = self.number
        return False


@dataclass(eq=False, repr=False)
class XMLEnsemble(Predictor, BaseEstimator):
    """Classifiers with the same parameters and rows but different seeds, whose scores are averaged.

    A seed decides the network's initial weights, the order of the rows, and which rows are held out for stacking; the
    mean depends less on this chance. Training, prediction and files cost `n_estimators` times as much. An ensemble
    predicts and saves as `XMLClassifier` does, but it cannot be trained further.

    `predict_topk` ranks the labels that at least one classifier has among its best 2 k (at least 32; with candidates,
    at least 8). If a classifier does not have a label among these, the score of the last of them stands for its score.
    Without candidates this is never too low.

    Parameters
    ----------
    estimator : XMLClassifier, optional
        The classifier to clone, which does not change. None for default parameters, which
        `set_params(estimator__max_epochs=...)` cannot change. Its `n_jobs` is also used for prediction.
    n_estimators : int
        Number of classifiers, which are trained one after the other.
    random_state : int or RandomState, optional
        Seed from which the seeds of the classifiers are drawn; None for the `random_state` of `estimator`.

    Attributes
    ----------
    estimators_ : list of XMLClassifier
        The trained classifiers.
    classes_, n_features_in_, feature_names_in_, vectorizer_, label_counts_, n_samples_seen_
        As in `XMLClassifier`.
    history_ : list of dict
        The epoch records of all classifiers, each with the number of its classifier, from 0, as "estimator".
    n_epochs_ : int
        Number of epochs of all classifiers together.
    """

    estimator: XMLClassifier | None = None
    n_estimators: int = 3
    _: KW_ONLY
    random_state: Any = None

    save = saving.save

    def __sklearn_tags__(self) -> Any:
        return XMLClassifier().__sklearn_tags__()

    @property
    def history_(self) -> list[dict[str, Any]]:
        """Return the epoch records of all classifiers."""
        return [record for member in self.estimators_ for record in member.history_]

    @property
    def n_epochs_(self) -> int:
        """Return the number of epochs of all classifiers together."""
        return sum(member.n_epochs_ for member in self.estimators_)

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        eval_set: tuple[Any, Any] | None = None,
        *,
        label_names: Sequence[Any] | None = None,
        groups: ArrayLike | Literal["similar"] | None = None,
        label_texts: Any = None,
        feature_names: Sequence[str] | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: Checkpoint | str | PathLike[str] | None = None,
    ) -> XMLEnsemble:
        """Learn from rows and their labels.

        If an error ends training, the classifiers that are done are kept. If none is done, what the first one has
        learned is kept; if that is nothing, the ensemble does not change.

        Parameters
        ----------
        X, y, sample_weight, eval_set, label_names, groups, label_texts, feature_names
            As in `XMLClassifier.fit`.
        callbacks : list of Callback
            Called at the events of the runs of all classifiers, one after the other.
        checkpoint : path or Checkpoint, optional
            Folder with a checkpoint of each classifier. When resumed, classifiers that were done only learn their
            candidates again.

        Returns
        -------
        XMLEnsemble
            The estimator itself.

        Raises
        ------
        DataError, MemoryEstimateError, DivergenceError
            As in `XMLClassifier.fit`.
        """
        self._check_number()
        check_callbacks(callbacks)
        checkpoints = as_checkpoint(checkpoint)
        if checkpoints:
            checkpoints.check_parts()
        rows = GivenRows(
            X, y, sample_weight=sample_weight, eval_set=eval_set, groups=groups, label_texts=label_texts,
            feature_names=feature_names, owner=type(self).__name__,
        )  # fmt: skip
        data = clone(self._template())._read_rows(rows, label_names)
        self._check_memory(data)
        members: list[XMLClassifier] = []
        try:
            for number, member in enumerate(self._untrained(checkpoints is not None)):
                numbered, part = [EstimatorNumber(number), *callbacks], checkpoints and checkpoints.part(number)
                try:
                    member._fit_data(data, numbered, part)
                except BaseException:
                    if hasattr(member, "fitted_") and not members:  # half a classifier is kept only if no whole one is
                        members.append(member)
                    raise
                members.append(member)
        finally:
            if members:
                self._set_members(members)
        if checkpoints:
            checkpoints.done()
        return self

    def _untrained(self, has_checkpoints: bool) -> list[XMLClassifier]:
        """Return the classifiers to train, each with its seed, all with one vectorizer: its words are kept once.

        Without a `random_state`, a classifier that resumes takes the seed in its checkpoint.
        """
        template = self._template()
        seeding = template if self.random_state is None else self
        seeds = random_state_of(seeding).randint(np.iinfo(np.int32).max, size=self.n_estimators).tolist()
        if seeding.random_state is None and has_checkpoints:
            seeds = [None] * self.n_estimators
        return [clone(template).set_params(vectorizer=template.vectorizer, random_state=seed) for seed in seeds]

    def plan(
        self,
        X: Any,
        y: Any,
        eval_set: tuple[Any, Any] | None = None,
        groups: ArrayLike | Literal["similar"] | None = None,
        *,
        label_texts: Any = None,
        feature_names: Sequence[str] | None = None,
    ) -> TrainingPlan:
        """Return how `fit` would train each classifier on these rows, without training, and the memory for all.

        Parameters
        ----------
        X, y, eval_set, groups, label_texts, feature_names
            As in `fit`.

        Returns
        -------
        TrainingPlan
            As in `XMLClassifier.plan`. The classifiers differ in their seeds only.
        """
        self._check_number()
        rows = GivenRows(X, y, eval_set=eval_set, groups=groups, label_texts=label_texts, feature_names=feature_names)
        template = clone(self._template())
        data = template._read_rows(rows)
        return memory.with_estimate(template._planned(data)[0], self._estimate(data)["total"])

    def estimate_memory(self, X: Any, y: Any, eval_set: tuple[Any, Any] | None = None) -> dict[str, int]:
        """Return the bytes of memory that `fit` would need, without training.

        Parameters
        ----------
        X, y, eval_set
            As in `fit`.

        Returns
        -------
        dict
            As in `XMLClassifier.estimate_memory`, with one more part, "trained": the classifiers that are already done
            while the last one is trained. "earlier_model" are the classifiers of an earlier `fit`.
        """
        self._check_number()
        return self._estimate(clone(self._template())._read_rows(GivenRows(X, y, eval_set=eval_set)))

    def _estimate(self, data: TrainingData) -> dict[str, int]:
        """Return what `estimate_memory` does for these rows."""
        plan, data = clone(self._template())._planned(data)
        parts = {**memory.estimate(plan, data), **memory.on_gpus(plan, data)}
        parts["earlier_model"] = sum(memory.model_bytes(member.fitted_) for member in getattr(self, "estimators_", ()))
        parts["trained"] = (self.n_estimators - 1) * _trained_bytes(parts)
        return {**parts, "total": parts["total"] + parts["earlier_model"] + parts["trained"]}

    def _template(self) -> XMLClassifier:
        """Return the classifier to clone."""
        if self.estimator is not None and not isinstance(self.estimator, XMLClassifier):
            raise DataError(f"estimator: must be an XMLClassifier or None, got {shorten(self.estimator)}")
        return XMLClassifier() if self.estimator is None else self.estimator

    def _set_members(self, members: list[XMLClassifier]) -> None:
        """Make this the ensemble of `members`, which were trained on the same rows; let them share the label names."""
        first = members[0].fitted_
        for member in members:
            member.fitted_ = replace(member.fitted_, names=first.names)
        learned = [member.fitted_ for member in members]
        thresholds = [each.thresholds for each in learned if each.thresholds is not None]
        self.estimators_: list[XMLClassifier] = members
        self.fitted_ = replace(
            first,
            features=replace(first.features, owner=type(self).__name__),
            calibration=BetaCalibration.mean([each.calibration for each in learned]),
            thresholds=Thresholds.mean(thresholds) if thresholds else None,
        )

    def _check_number(self) -> None:
        """Raise `DataError` if `n_estimators` is invalid."""
        if not is_positive_integer(self.n_estimators):
            raise DataError(f"n_estimators: must be a positive integer, got {shorten(self.n_estimators)}")

    def _check_memory(self, data: TrainingData) -> None:
        """Raise `MemoryEstimateError` if one classifier would fit into memory, but not all of them."""
        parts, allowed = self._estimate(data), memory.allowed()
        last = parts["total"] - parts["trained"]
        if last <= allowed < parts["total"]:  # if even one is too large, its own `fit` raises the error
            fitting = 1 + (allowed - last) // _trained_bytes(parts)
            raise MemoryEstimateError(
                f"n_estimators: {self.n_estimators} need about {memory.readable(parts['total'])}, more than 80 % of "
                f"the memory; {fitting} fit, and smaller hidden_layer_sizes take less"
            )

    @property
    def _n_jobs(self) -> int | None:
        return self._template().n_jobs

    def _scorer(self, X: CSR) -> MeanScorer:
        return MeanScorer([member.fitted_.scorer(X, self._n_jobs) for member in self.estimators_])


Model: TypeAlias = XMLClassifier | XMLEnsemble


def load_model(
    path: str | PathLike[str], *, verify: bool = True, device: str | None = None, precision: str | None = None
) -> XMLClassifier | XMLEnsemble:
    """Return the `XMLClassifier` or `XMLEnsemble` that was saved at `path`.

    Parameters
    ----------
    path, verify, device, precision
        As in `XMLClassifier.load`.

    Returns
    -------
    XMLClassifier or XMLEnsemble

    Raises
    ------
    ModelFileError
        If the folder was not written by `save`, or was altered.
    """
    ensemble, members = saving.read_checked(path, verify, partial(saving.read_estimators, XMLEnsemble, XMLClassifier))
    for member in members:
        member.fitted_ = saving.predicting_on(member.fitted_, device, precision)
    if ensemble is None:
        return members[0]
    ensemble._set_members(members)
    return ensemble


def _trained_bytes(parts: dict[str, int]) -> int:
    """Return the most bytes of a trained classifier, given the memory of its training by part."""
    return parts["parameters"] + parts["candidates"]
