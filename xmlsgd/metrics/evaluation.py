"""Several metrics of one ranking, and metrics found by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from inspect import signature
from pkgutil import iter_modules

import numpy as np

from ..data.validation import check_choice, is_positive_integer
from ..errors import DataError, shorten
from .comparison import Matrix, compare, labels_of
from .propensity import inverse_propensity

SUFFIX = "_at_k"
USUAL_METRICS = ("P", "nDCG", "R", "PSP")  # of `evaluate_ranking`, in this order; PSP only with propensities
# Names of metrics in tables, where they are not those of the functions.
TABLE_NAMES = {
    "macro_f1": "macro F1", "micro_f1": "micro F1", "ndcg": "nDCG", "precision": "P", "psndcg": "PSnDCG",
    "psprecision": "PSP", "psrecall": "PSR", "recall": "R",
}  # fmt: skip


def metric(name: str) -> Callable[..., np.ndarray]:
    """Return the metric of a name, a function `<name>_at_k` of one of the modules of `xmlsgd.metrics`.

    Parameters
    ----------
    name : str
        Such as "coverage" for `coverage_at_k`, and "nDCG" or "ndcg" for `ndcg_at_k`.

    Returns
    -------
    callable

    Raises
    ------
    DataError
        If no metric has this name.
    """
    functions = metrics_by_name()
    check_choice("metric", table_name(name), functions)
    return functions[table_name(name)]


def table_name(name: str) -> str:
    """Return the name of a metric in tables, given that or the name of its function."""
    if not isinstance(name, str):
        return name
    name = name.removesuffix(SUFFIX)
    return TABLE_NAMES.get(name, name)


def metrics_by_name() -> dict[str, Callable[..., np.ndarray]]:
    """Return all functions `<name>_at_k` of the modules in this folder, by their names in tables."""
    package = import_module(__package__)
    modules = [import_module(f"{__package__}.{module.name}") for module in iter_modules(package.__path__)]
    functions = {key: value for module in modules for key, value in vars(module).items() if key.endswith(SUFFIX)}
    return {table_name(key.removesuffix(SUFFIX)): functions[key] for key in sorted(functions)}


def takes_propensity(function: Callable[..., np.ndarray]) -> bool:
    """Return whether a metric takes the inverse propensities of the labels as its third argument."""
    return "inv_propensity" in signature(function).parameters


def evaluate_ranking(
    Y_true: Matrix,
    predicted: Matrix,
    Y_train: Matrix | None = None,
    ks: Sequence[int] = (1, 3, 5),
    inv_propensity: np.ndarray | None = None,
    metrics: Sequence[str] = (),
) -> dict[str, float]:
    """Compute the usual metrics in percent: P, nDCG and recall at k, and PSP if propensities are known.

    Parameters
    ----------
    Y_true, predicted
        As in `precision_at_k`.
    Y_train : matrix of shape (N, L), optional
        Labels of the training rows, for PSP by `inverse_propensity(Y_train)`. Labels of `Y_true` beyond those of
        `Y_train` count as never trained.
    ks : sequence of int
        Ranks.
    inv_propensity : ndarray of shape (L,), optional
        q_l of each label, instead of `Y_train`: `inverse_propensity(Y_train, A, B)` with other constants, or
        `model.inverse_propensity(n_labels=Y_true.shape[1])`.
    metrics : sequence of str
        Names of further metrics, such as "coverage" for `coverage_at_k`; see `metric`.

    Returns
    -------
    dict
        Percentages: "P@1", "P@3", ..., "nDCG@5", "R@5", "PSP@1", ..., and "coverage@1", ... for further metrics.

    Raises
    ------
    DataError
        If the inputs do not fit each other, or if no metric has one of the names.
    """
    if Y_train is not None and inv_propensity is not None:
        raise DataError("inv_propensity: must be given without Y_train, got both; leave one out")
    ks = list(ks) if isinstance(ks, Iterable) else [ks]
    if not ks or not all(map(is_positive_integer, ks)):
        raise DataError(f"ks: must be integers of at least 1, got {shorten(ks)}")
    compared = compare(Y_true, predicted, k := max(ks))
    if Y_train is not None:
        if (train := labels_of(Y_train, "Y_train")).n_cols > compared.Y.n_cols:
            wanted = f"must have at most the {compared.Y.n_cols} labels of Y_true"
            raise DataError(f"Y_train: {wanted}, got {train.n_cols}; give both the same columns")
        inv_propensity = inverse_propensity(train, n_labels=compared.Y.n_cols)
    functions = {name: metric(name) for name in USUAL_METRICS}
    if inv_propensity is None:
        functions = {name: function for name, function in functions.items() if not takes_propensity(function)}
    functions |= {table_name(name): metric(name) for name in metrics}
    values = {}
    for name, function in functions.items():
        if (weighted := takes_propensity(function)) and inv_propensity is None:
            raise DataError(f"metrics: {name} needs propensities, got none; pass Y_train or inv_propensity")
        weights = (inv_propensity,) if weighted else ()
        values[name] = function(compared.Y, compared.labels, *weights, k=k)
    return {f"{name}@{at}": 100 * float(vector[at - 1]) for name, vector in values.items() for at in ks}
