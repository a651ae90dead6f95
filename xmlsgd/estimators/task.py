"""What a run learns from and with: the rows that `fit` was given, checked, and what its parameters ask for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..algorithms.base import Algorithm
from ..data.csr import VALIDATION, Dataset
from ..errors import DataError, shorten
from ..nn.network import Network
from .defaults import SHORTLIST_NEGATIVES, auto_batch_size, auto_rounding, auto_shortlist, input_scale
from .inputs import check_weight, learn_words, read_features, read_weight
from .parameters import optimizer_of
from .placement import Worker, algorithm_of, make_device, parse_devices, workers_of
from .targets import Form, Labels, form_of, label_weights, read_labels
from .threads import flops, thread_count

if TYPE_CHECKING:
    from ..devices.cpu import CPU
    from ..nn.optimizers import Optimizer
    from .classifier import XMLClassifier


@dataclass(frozen=True, eq=False)
class Task:
    """Rows to learn, checked, with what learns them. `held_out` rows are measured after every epoch.

    `device` has all threads: it trains where there is one worker, and measures. `algorithm` is that of equally fast
    workers: how fast they are is measured later (`launch`). `shortlist_size` is how many labels a row
    has on its shortlist, 0 for none; `boosted` is whether trees blend what is known of them; `n_negatives` are the
    labels drawn for a batch besides its own, None for all labels.
    """

    dataset: Dataset
    labels: Labels
    weight: np.ndarray | None
    held_out: Dataset | None
    network: Network
    optimizer: Optimizer
    batch: int
    n_threads: int
    device: Any
    workers: list[Worker]
    algorithm: Algorithm
    shortlist_size: int
    boosted: bool
    n_negatives: int | None

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return self.dataset.n_rows

    @property
    def cpu(self) -> CPU:
        """Return the device for what only a CPU does."""
        from ..devices.cpu import cpu_of  # here, so that an estimator can be made without loading Numba

        return cpu_of(self.device, self.n_threads)


def prepare(
    model: XMLClassifier,
    X: Any,
    y: Any,
    classes: Any,
    old: Network | None,
    sample_weight: Any,
    eval_set: Any = None,
    *,
    listing: bool = False,
) -> Task:
    """Read and check what `fit` was given; `old` is the network that goes on, and may grow, or None.

    listing : whether a shortlist may be learned. Learns `n_features_in_` and `feature_names_in_`.
    """
    dataset, labels = read_rows(model, X, y, classes, old)
    weight, held_out = _row_weights(model, sample_weight, labels), _read_eval_set(model, eval_set, labels)
    if model.early_stopping and held_out is None:
        dataset, weight, held_out = _hold_out(model, dataset, weight)
    network, optimizer = _network(model, dataset, labels, old), optimizer_of(model)
    batch = _batch(model, dataset.n_rows)
    # Backward takes two products for each one forward.
    work = math.inf if len(parse_devices(model.devices)) > 1 else 3 * flops(network, dataset.X, batch)
    n_threads = thread_count(model.n_jobs, work)
    workers = workers_of(model.devices, n_threads)
    algorithm = algorithm_of(model.algorithm, batch, 1.0, workers, lambda: (1.0,) * len(workers))
    device = make_device(workers[0].name, n_threads, model.precision)
    shortlist_size = _shortlist_size(model, dataset, network, labels) if listing else 0
    boosted = listing and model.stacking == "boosted"
    if boosted:
        _check_boosted(shortlist_size, dataset.n_rows if weight is None else np.count_nonzero(weight))
    n_negatives = _negatives(model, shortlist_size, dataset.n_labels)
    rounding = _rounding(model, n_negatives or dataset.n_labels, network.loss, optimizer, workers)
    network = replace(network, gradient_rounding=rounding)
    return Task(
        dataset, labels, weight, held_out, network, optimizer, batch, n_threads, device, workers, algorithm,
        shortlist_size, boosted, n_negatives,
    )  # fmt: skip


def read_rows(model: XMLClassifier, X: Any, y: Any, classes: Any, old: Network | None) -> tuple[Dataset, Labels]:
    """Return the checked rows and their labels; columns are named by `classes` as far as these go."""
    if y is None:
        raise DataError(
            f"This {type(model).__name__} estimator requires y to be passed, but the target y is None; pass labels"
        )
    if old is None:
        learn_words(model, model.vectorizer, X)
    features = read_features(model, X, reset=old is None, grow=old is not None)
    labels = read_labels(y, classes)
    if old is not None:
        check_form(labels.form, model.label_form_)
    if features.n_rows == 0:
        raise DataError("X: must have at least one row, got 0")
    check_lengths(features.n_rows, labels.Y.n_rows)
    if labels.Y.nnz == 0:
        raise DataError(f"Y: must have at least one label, got none in {labels.Y.n_rows} rows")
    model.n_features_in_ = features.n_cols
    return Dataset(features, labels.Y), labels


def check_form(form: Form, seen: Form, name: str = "") -> None:
    """Raise `DataError` where one class a row meets sets of labels."""
    if (form == "multiclass") != (seen == "multiclass"):
        raise DataError(f"{name}Y must be of the form of the training labels ({seen}), got {form}")


def check_lengths(n_rows: int, n_labelled: int, name: str = "") -> None:
    """Raise `DataError` unless X and Y have the same number of rows."""
    if n_rows != n_labelled:
        raise DataError(f"{name}X and Y must have the same number of rows, got {n_rows} and {n_labelled}")


def _batch(model: XMLClassifier, n_rows: int) -> int:
    """Return the rows of a step."""
    if isinstance(model.algorithm, Algorithm):
        return min(model.algorithm.batch, n_rows)
    return auto_batch_size(n_rows) if model.batch_size == "auto" else min(int(model.batch_size), n_rows)


def _shortlist_size(model: XMLClassifier, dataset: Dataset, network: Network, labels: Labels) -> int:
    """Return how many labels the shortlist of a row shall have, 0 for no shortlist."""
    if model.candidates == "auto":
        return auto_shortlist(dataset.Y, network.loss, labels.form)
    if model.candidates and labels.form == "multiclass":
        raise DataError(f"candidates: must be 0 for one class a row, got {model.candidates}; it is for sets of labels")
    return min(int(model.candidates), dataset.n_labels)


def _check_boosted(shortlist_size: int, n_rows: int) -> None:
    """Raise `DataError` where there is nothing for trees to blend, or too few rows of a weight above 0 to learn it."""
    from ..candidates import HELD_OUT_BOOSTED  # here, so that an estimator can be made without loading Numba

    if not shortlist_size:
        raise DataError("stacking: 'boosted' needs candidates, got none here; pass candidates=64 or 'logistic'")
    if not HELD_OUT_BOOSTED.of(n_rows):
        least = round(HELD_OUT_BOOSTED.least / HELD_OUT_BOOSTED.share)
        raise DataError(f"stacking: 'boosted' needs {least} rows of a weight above 0, got {n_rows}; pass 'logistic'")


def _network(model: XMLClassifier, dataset: Dataset, labels: Labels, old: Network | None) -> Network:
    """Return the network for the rows; one that goes on keeps its hidden layers, its loss and its scale."""
    hidden = tuple(int(size) for size in model.hidden_layer_sizes)
    drops: dict[str, Any] = {"input_dropout": float(model.input_dropout), "hidden_dropout": float(model.hidden_dropout)}
    if old is None:
        loss = model.loss if model.loss != "auto" else "softmax" if labels.form == "multiclass" else "bce"
        scale = input_scale(dataset.X)
        return Network(dataset.n_features, dataset.n_labels, hidden, loss, **drops, input_scale=scale)
    if old.hidden != hidden:
        raise DataError(f"hidden_layer_sizes: must stay {old.hidden} when learning goes on, got {hidden}")
    if model.loss not in ("auto", old.loss):
        raise DataError(f"loss: must stay {old.loss!r} when learning goes on, got {model.loss!r}")
    return replace(old, n_features=dataset.n_features, n_labels=dataset.n_labels, **drops)


def _negatives(model: XMLClassifier, shortlist_size: int, n_labels: int) -> int | None:
    """Return how many labels are drawn for a batch besides its own, None for all."""
    if model.sampler == "all":
        return None
    drawn = shortlist_size or model.sampler != "auto"
    wanted = SHORTLIST_NEGATIVES if model.negatives == "auto" and drawn else model.negatives
    return None if isinstance(wanted, str) or wanted >= n_labels else int(wanted)


def _rounding(model: XMLClassifier, n_labels: int, loss: str, optimizer: Optimizer, workers: list[Worker]) -> float:
    """Return the threshold of gradients; `n_labels` are those that a batch trains, besides its own where drawn."""
    if model.gradient_rounding == "auto":
        return auto_rounding(n_labels, loss, optimizer, [worker.kind for worker in workers])
    gpu = next((worker.name for worker in workers if worker.kind == "cuda"), None)
    if model.gradient_rounding and gpu:
        raise DataError(f"gradient_rounding: must be 'auto' or 0 on a GPU, got {model.gradient_rounding} and {gpu!r}")
    return float(model.gradient_rounding)


def _row_weights(model: XMLClassifier, sample_weight: Any, labels: Labels) -> np.ndarray | None:
    """Return the weight of each row, its own times that of its class, or None for ones."""
    weight, by_class = read_weight(sample_weight, labels.Y.n_rows), label_weights(model.class_weight, labels)
    if by_class is None:
        return weight
    product: np.ndarray = by_class if weight is None else weight * by_class
    if not product.any():
        raise DataError("class_weight: must leave rows of a weight above 0, got none; use weights around 1")
    check_weight(product, "class_weight")
    return product


def _read_eval_set(model: XMLClassifier, eval_set: Any, labels: Labels) -> Dataset | None:
    """Return the held-out rows that the caller gave."""
    if eval_set is None:
        return None
    if not isinstance(eval_set, tuple | list) or len(eval_set) != 2:
        raise DataError(f"eval_set: must be a pair (X, Y), got {shorten(eval_set)}")
    X = read_features(model, eval_set[0])
    check_form(form_of(eval_set[1], "eval_set: Y"), labels.form, "eval_set: ")
    Y = read_labels(eval_set[1], labels.classes, "eval_set: Y").Y
    check_lengths(X.n_rows, Y.n_rows, "eval_set: ")
    if X.n_rows == 0:
        raise DataError("eval_set: must have at least one row, got 0")
    return Dataset(X, Y)


def _hold_out(
    model: XMLClassifier, dataset: Dataset, weight: np.ndarray | None
) -> tuple[Dataset, np.ndarray | None, Dataset]:
    """Return the training rows with their weights, and a random `validation_fraction` of the rows."""
    n = dataset.n_rows
    n_held = max(round(model.validation_fraction * n), 1)
    if n_held >= n:
        raise DataError(f"early_stopping: needs rows for training and for validation, got {n} in all")
    order = np.random.default_rng((model._seed, VALIDATION)).permutation(n)
    held, kept = np.sort(order[:n_held]), np.sort(order[n_held:])
    return (
        Dataset(dataset.X.take(kept), dataset.Y.take(kept)),
        None if weight is None else weight[kept],
        Dataset(dataset.X.take(held), dataset.Y.take(held)),
    )
