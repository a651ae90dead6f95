"""Search for better parameters by a metric on validation rows, within a time budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from statistics import fmean
from time import perf_counter as now
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from ..data.csr import Dataset
from ..data.validation import is_number, is_positive_integer
from ..errors import DataError, DivergenceError, MemoryEstimateError, optional_module, shorten
from ..metrics import label_scores
from ..metrics.evaluation import metrics_by_name, table_name, takes_propensity
from ..training.callbacks import Callback
from ..training.history import EpochRecord
from .classifier import XMLClassifier
from .parameters import random_state_of
from .plan import TrainingPlan
from .training_data import GivenRows, TrainingData, with_validation_rows

Metric = Callable[[XMLClassifier, Dataset], float]  # of a trained model on rows, in percent

SHARE, MOST_ROWS = 0.1, 10_000  # share and largest number of the validation rows
F1 = ("micro F1", "macro F1")  # metrics of the labels above the learned thresholds


class Trial(NamedTuple):
    """A training run of the search.

    Attributes
    ----------
    parameters : dict
        Parameters of `XMLClassifier` that differ from the given ones; empty in the first trial.
    value : float
        The metric on validation rows in percent; NaN if training diverged or would have needed too much memory.
    seconds : float
        Duration of training and evaluation.
    """

    parameters: dict[str, Any]
    value: float
    seconds: float


class Tuning(NamedTuple):
    """The result of `tune`.

    Attributes
    ----------
    best : Trial
        The trial with the largest value; of equal ones, the first.
    trials : list of Trial
        All trials in order; the first has the given parameters.
    n_validation : int
        Number of validation rows.
    """

    best: Trial
    trials: list[Trial]
    n_validation: int


class TimeUp(Exception):
    """The time of the search is up."""


class Deadline(Callback):
    """Raise `TimeUp` at the end of the first epoch after a given time."""

    def __init__(self, end: float) -> None:
        self.end = end

    def epoch(self, record: EpochRecord, center: np.ndarray) -> bool:
        """Check the time."""
        if now() > self.end:
            raise TimeUp
        return False


class SearchSpace:
    """The parameters of a model that a search may change, and their ranges.

    plan : the plan of training on all rows. data : the rows that trials learn. fixed : parameters that do not change;
    neither do those whose value in `model` is not the default.
    """

    def __init__(
        self, model: XMLClassifier, plan: TrainingPlan, data: TrainingData, fixed: Collection[str] = ()
    ) -> None:
        given, defaults = model.get_params(), XMLClassifier().get_params().items()
        self._free = {
            name: value for name, value in defaults
            if name not in fixed and not isinstance(given[name], np.ndarray) and given[name] == value
        }  # fmt: skip
        self.data = data
        # The number of candidates planned for all rows, even if the rows of trials were too few for candidates.
        self.base = clone(model).set_params(candidates=plan.n_candidates)
        self.defaults = {
            "candidates": plan.n_candidates, "hidden_layer_sizes": plan.network.hidden[0],
            "hidden_dropout_tenths": 0, "max_epochs_factor": 1, "learning_rate_factor": 1,
        }  # fmt: skip

    def parameters(self, trial: Any) -> dict[str, Any]:
        """Return the parameters of a trial of Optuna; each trial has the same set of parameters.

        Epochs and learning rate are drawn as factors of their values in the plan, dropout in tenths. Annif shows what
        is drawn, so the names say this. If the trial has the values of `defaults`, the result are the parameters of the
        model.
        """
        free, found = self._free, dict[str, Any]()
        if "candidates" in free and self.base.candidates:
            sizes = sorted({min(size, self.data.all_rows.n_labels) for size in (0, 32, 64, 128)})
            found["candidates"] = trial.suggest_categorical("candidates", sizes)
        if "hidden_layer_sizes" in free:
            found["hidden_layer_sizes"] = (trial.suggest_categorical("hidden_layer_sizes", [64, 128, 256, 512]),)
        if "hidden_dropout" in free:
            found["hidden_dropout"] = trial.suggest_int("hidden_dropout_tenths", 0, 6) / 10
        plan, _ = clone(self.base).set_params(**found)._planned(self.data)
        if "max_epochs" in free:
            factor = trial.suggest_float("max_epochs_factor", 0.5, 4, log=True)
            found["max_epochs"] = max(round(plan.schedule.epochs * factor), 1)
        if "learning_rate_init" in free:
            factor = trial.suggest_float("learning_rate_factor", 0.25, 4, log=True)
            found["learning_rate_init"] = float(f"{plan.learning_rate * factor:.2g}")
        return found

    def changed(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters that differ from the defaults."""
        return {name: value for name, value in parameters.items() if value != self._free[name]}


def tune(
    X: Any,
    y: Any,
    model: XMLClassifier | None = None,
    *,
    metric: str = "P@1",
    seconds: float = 600,
    n_trials: int | None = None,
    groups: ArrayLike | Literal["similar"] | None = None,
    label_texts: Any = None,
    feature_names: Sequence[str] | None = None,
    fixed: Collection[str] = (),
    callback: Callable[[Trial], None] | None = None,
) -> Tuning:
    """Search for parameters with a higher metric on validation rows; needs Optuna, `pip install "xmlsgd[tune]"`.

    A tenth of the rows, at most 10,000, are validation rows. The first trial has the given parameters, so that the
    result is never worse on these rows. Then Optuna's TPE sampler chooses `candidates`, `hidden_layer_sizes`,
    `max_epochs`, `learning_rate_init` and `hidden_dropout`, except for parameters that are `fixed` or not at their
    default in `model`.

    Parameters
    ----------
    X, y : matrix, CSR or texts; indicator or label lists
        Rows and their labels, as in `XMLClassifier.fit`; one class per row is refused.
    model : XMLClassifier, optional
        Estimator with the given parameters; it does not change. Its `random_state` is the seed of the validation rows,
        the search and each training run.
    metric : str
        A metric at a rank, such as "P@1", "nDCG@5", "PSP@3", "R@5", "coverage@5" (docs/metrics.md), or "micro F1" or
        "macro F1" of the labels above the learned thresholds.
    seconds : float
        Time budget. No trial begins that would end later, if it took as long as the trials before; a trial whose
        training exceeds the budget does not count. The first trial is always completed.
    n_trials : int, optional
        Maximum number of trials. With ``seconds=inf``, the same seed gives the same trials.
    groups, label_texts, feature_names : optional
        As in `fit`; groups stay whole.
    fixed : collection of str, optional
        Names of parameters that do not change.
    callback : callable, optional
        Called with each `Trial` when it is done.

    Returns
    -------
    Tuning

    Raises
    ------
    DataError
        If the input is invalid, or the metric is unknown.
    """
    optuna = optional_module("optuna", "tune")  # here, as it is slow to import

    model = XMLClassifier() if model is None else model
    metric_of = check_search(metric, seconds, n_trials)
    seed = int(random_state_of(model).randint(np.iinfo(np.int32).max))
    given = GivenRows(X, y, groups=groups, label_texts=label_texts, feature_names=feature_names)
    base = clone(model).set_params(random_state=seed)
    data = base._read_rows(given)
    rows, validation = _split(data, seed)
    space = SearchSpace(base, base._planned(data)[0], rows, fixed)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    study.enqueue_trial(space.defaults)
    states = optuna.trial.TrialState
    trials: list[Trial] = []
    end = now() + seconds
    while not trials or (len(trials) != n_trials and now() + fmean(trial.seconds for trial in trials) <= end):
        asked, begun = study.ask(), now()
        suggested = space.parameters(asked)  # also in the first trial, so that the study knows its parameters
        changed = space.changed(suggested) if trials else {}
        try:
            tried = clone(space.base).set_params(**changed)
            tried._fit_data(rows, [Deadline(end if trials else math.inf)])
            value = metric_of(tried, validation)
        except TimeUp:
            break
        except (DivergenceError, MemoryEstimateError):
            if not trials:
                raise
            value = math.nan
        failed = math.isnan(value)
        study.tell(asked, None if failed else value, state=states.FAIL if failed else states.COMPLETE)
        trials.append(Trial(changed, value, now() - begun))
        if callback is not None:
            callback(trials[-1])
    return Tuning(best_of(trials), trials, validation.n_rows)


def best_of(trials: Sequence[Trial]) -> Trial:
    """Return the trial with the largest value; of equal ones, the first."""
    return max(trials, key=lambda trial: -math.inf if math.isnan(trial.value) else trial.value)


def check_search(metric: str, seconds: float, n_trials: int | None) -> Metric:
    """Return the metric of a name; raise `DataError` if it, the time budget or the number of trials is invalid."""
    if not is_number(seconds) or seconds <= 0:
        raise DataError(f"seconds: must be above 0, got {shorten(seconds)}")
    if n_trials is not None and not is_positive_integer(n_trials):
        raise DataError(f"n_trials: must be an integer of at least 1, got {shorten(n_trials)}")
    return _find_metric(metric)


def _split(data: TrainingData, seed: int) -> tuple[TrainingData, Dataset]:
    """Return the rows without a tenth of them, and this tenth."""
    if data.form == "multiclass":
        raise DataError("y: must be label lists or an indicator, got one class per row; use GridSearchCV for these")
    split = with_validation_rows(data, min(int(SHARE * data.n_given_rows), MOST_ROWS), seed)
    if split is None or split.validation is None:
        wanted = "must have 10 rows, and a group of at most a tenth of them, for validation"
        raise DataError(f"X: {wanted}; got {data.n_given_rows} rows")
    return replace(split, validation=None), split.validation


def _find_metric(name: str) -> Metric:
    """Return the metric of a name; raise `DataError` for an unknown one."""
    if name in F1:
        kind = name.split()[0]
        return lambda model, rows: 100 * getattr(label_scores(rows.Y, model.predict(rows.X, kind)), f"{kind}_f1")
    kind, _, rank = str(name).partition("@")
    function = metrics_by_name().get(table_name(kind))
    if function is None or not (rank.isascii() and rank.isdigit() and int(rank)):
        known = ", ".join(metrics_by_name())
        wanted = f"must be a name and a rank, as in nDCG@5, or {' or '.join(F1)}"
        raise DataError(f"metric: {wanted}, got {shorten(name)}; names are {known}")
    k = int(rank)

    def measure(model: XMLClassifier, rows: Dataset) -> float:
        labels, _ = model.predict_topk(rows.X, k)
        weights = (model.inverse_propensity(),) if takes_propensity(function) else ()
        return 100 * float(function(rows.Y, labels, *weights, k=k)[-1])

    return measure
