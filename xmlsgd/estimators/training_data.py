"""Read and check the rows that `fit` is given: features, labels, weights, groups, validation rows."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..data.csr import CSR, Dataset, stacked
from ..data.frames import as_list
from ..data.held_out import draw_rows, groups_of_similar_rows
from ..data.random_streams import VALIDATION
from ..data.validation import named_groups
from ..errors import DataError, problems_named, shorten, warn
from .defaults import feature_squares
from .fitted import FittedModel
from .inputs import FeatureSpace, check_plain, grow_features, learn_features, read_features
from .label_texts import read_label_rows, with_new_labels
from .names import Names, python_values
from .parameters import is_amount
from .targets import Form, Labels, form_of, read_labels

if TYPE_CHECKING:
    from .classifier import XMLClassifier

# Warn of a column with most of the squared values only if there are at least `MIN_COLUMNS` columns, and its values are
# more than `LARGE` times those of others: it may just be frequent.
MIN_COLUMNS, LARGE = 8, 10
# Limits of row weights other than 0, within which squared gradients in optimizer states, and votes, fit float32.
LEAST_WEIGHT, MOST_WEIGHT = 1e-20, 1e9


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Rows to train on, with their properties.

    Attributes
    ----------
    all_rows : the rows; the last `n_label_rows` are made of label texts.
    names : names of the label columns.
    form : form of the labels.
    features : how X is read. Rows are raw until a first `fit` has planned this, and calls `transformed`.
    weight : weights of the rows, float32 (n,); None for ones.
    validation : validation rows, evaluated after every epoch; None for none.
    groups : numbers of groups, int64 (n,); rows of a group are held out together. None for independent rows.
    n_label_rows : number of label rows. They are trained on, but never counted, held out or evaluated.
    """

    all_rows: Dataset
    names: Names
    form: Form
    features: FeatureSpace
    weight: NDArray[np.float32] | None
    validation: Dataset | None
    groups: NDArray[np.int64] | None = None
    n_label_rows: int = 0

    @property
    def n_given_rows(self) -> int:
        """Return the number of rows that `fit` was given, without label rows."""
        return self.all_rows.n_rows - self.n_label_rows

    @property
    def given_rows(self) -> Dataset:
        """Return the rows that `fit` was given, without label rows."""
        return Dataset(self.all_rows.X.span(0, self.n_given_rows), self.all_rows.Y.span(0, self.n_given_rows))

    @property
    def row_weights(self) -> NDArray[np.float32]:
        """Return the weights of the rows, float32 (n,), also if all are 1."""
        return np.ones(self.all_rows.n_rows, np.float32) if self.weight is None else self.weight

    def weight_without(self, rows: NDArray[np.intp]) -> NDArray[np.float32] | None:
        """Return the weights of the rows, float32 (n,), with 0 for `rows`; None if all are 1."""
        if not len(rows):
            return self.weight
        weight = self.row_weights.copy()
        weight[rows] = 0
        return weight

    @property
    def n_learned_rows(self) -> int:
        """Return the number of rows of weight above 0, without label rows."""
        return self.n_given_rows if self.weight is None else int(np.count_nonzero(self.weight[: self.n_given_rows]))

    @property
    def learned_labels(self) -> CSR:
        """Return the labels of the rows of weight above 0, without label rows."""
        Y = self.given_rows.Y
        return Y if self.weight is None else Y.take(np.flatnonzero(self.weight[: self.n_given_rows]))

    def transformed(self, features: FeatureSpace, n_jobs: int | None) -> TrainingData:
        """Return the data with X as transformed by `features`, by which the model will then read all rows."""
        validation = self.validation and Dataset(features.transform(self.validation.X, n_jobs), self.validation.Y)
        all_rows = Dataset(features.transform(self.all_rows.X, n_jobs), self.all_rows.Y)
        return replace(self, all_rows=all_rows, validation=validation, features=features)


@dataclass(frozen=True, eq=False)
class GivenRows:
    """The rows given to `fit`, by the names of its arguments, neither read nor checked yet.

    owner : name of the estimator in messages.
    """

    X: Any
    y: Any
    _: KW_ONLY
    sample_weight: Any = None
    eval_set: Any = None
    groups: Any = None
    label_texts: Any = None
    feature_names: Any = None
    owner: str = "XMLClassifier"


def read_training_data(
    estimator: XMLClassifier,
    given: GivenRows,
    *,
    names: Names | None = None,
    earlier: FittedModel | None = None,
    adds_rows: bool = False,
) -> TrainingData:
    """Read and check rows.

    Parameters
    ----------
    estimator
        Its parameters say how rows are read.
    given
        The rows.
    names
        Names of the label columns known so far.
    earlier
        The model from which training continues; X and Y may have more columns than it has features and labels.
    adds_rows
        Whether the rows are learned in addition to those of `earlier`, as in `partial_fit`; in `fit` they include them.
    """
    X, features, labels = _read_features_and_labels(estimator, given, names, earlier, adds_rows)
    weight = read_row_weights(estimator.class_weight, given.sample_weight, labels)
    if weight is not None and not adds_rows:  # costs of linear classifiers are chosen for weights around 1
        weight = weight / np.float32(weight[weight > 0].mean(dtype=np.float64))
    if earlier is None:
        _warn_of_features(X)
    validation = _read_eval_set(features, given.eval_set, labels, estimator.n_jobs)
    groups = _read_groups(given.groups, X)
    data = TrainingData(Dataset(X, labels.Y), labels.classes, labels.form, features, weight, validation, groups)
    return data if given.label_texts is None else _with_label_texts(data, given.label_texts)


def read_row_weights(class_weight: Any, sample_weight: Any, labels: Labels) -> NDArray[np.float32] | None:
    """Return the weight of each row, its sample weight times that of its class, float32 (n,); None for ones."""
    weight, by_class = read_sample_weight(sample_weight, labels.Y.n_rows), _weights_by_class(class_weight, labels)
    if by_class is None:
        return weight
    product: np.ndarray = by_class if weight is None else weight * by_class
    if not product.any():
        raise DataError("class_weight: must leave rows of a weight above 0, got none; use weights around 1")
    _check_limits(product, "class_weight")
    return product


def read_sample_weight(sample_weight: Any, n_rows: int) -> np.ndarray | None:
    """Return the weights of the rows as float32 (n,), checked; None stays None."""
    if sample_weight is None:
        return None
    sample_weight = as_list(sample_weight)
    check_plain(sample_weight, "sample_weight")
    try:
        with np.errstate(over="ignore"):
            weight = np.asarray(sample_weight, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"sample_weight: must be numbers, got {shorten(sample_weight)}") from error
    if weight.ndim == 0:
        weight = np.full(n_rows, weight)
    if weight.ndim != 1:
        raise DataError(f"sample_weight: Sample weights must be 1D array or scalar, got shape {weight.shape}")
    if len(weight) != n_rows:
        raise DataError(f"sample_weight: must have one value for each of {n_rows} rows, got {len(weight)}")
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if len(bad):
        raise DataError(f"sample_weight: row {bad[0]}: must be finite and not negative, got {weight[bad[0]]}")
    if not weight.any():
        raise DataError("sample_weight: must have at least one value above zero, got zeros only")
    _check_limits(weight, "sample_weight")
    return weight


def _weights_by_class(class_weight: Any, labels: Labels) -> np.ndarray | None:
    """Return the weight of each row by its class, float32 (n,); raise `DataError` unless there is one class per row."""
    if class_weight is None:
        return None
    if labels.form != "multiclass":
        form = f"class_weight: must be None unless Y has one class per row, got labels that are {labels.form}"
        raise DataError(f"{form}; weigh rows with sample_weight")
    if isinstance(class_weight, dict):
        by_class = _given_weights(class_weight, python_values(labels.classes))
    elif isinstance(class_weight, str) and class_weight == "balanced":
        counts = labels.Y.column_counts()
        by_class = len(labels.Y.indices) / (np.count_nonzero(counts) * np.maximum(counts, 1))
    else:
        raise DataError(f"class_weight: must be 'balanced', a dict or None, got {shorten(class_weight)}")
    return by_class.astype(np.float32)[labels.Y.indices]


def _given_weights(class_weight: dict[Any, Any], classes: list[Any]) -> np.ndarray:
    """Return the weight of each class, 1 if it is not given. Rows of a class of weight 0 are not learned."""
    unknown = [key for key in class_weight if key not in set(classes)]
    if unknown:
        raise DataError(f"class_weight: must name classes of Y, got {shorten(unknown[0])}")
    for key, weight in class_weight.items():
        if not is_amount(weight):
            got = f"{shorten(weight)} for {shorten(key)}"
            raise DataError(f"class_weight: a weight must be a finite number of at least 0, got {got}")
    return np.array([class_weight.get(key, 1.0) for key in classes])


def _check_limits(weight: np.ndarray, name: str) -> None:
    """Raise `DataError` unless weights of rows are 0 or within the limits."""
    bad = np.flatnonzero((weight != 0) & ~((weight >= LEAST_WEIGHT) & (weight <= MOST_WEIGHT)))
    if len(bad):
        limits, got = f"{LEAST_WEIGHT:g} to {MOST_WEIGHT:g}", f"{weight[bad[0]]:g} in row {bad[0]}"
        raise DataError(f"{name}: weights of rows must be 0 or {limits}, got {got}; scale them to a mean of 1")


def _read_groups(groups: Any, X: CSR) -> NDArray[np.int64] | None:
    """Return the groups of the rows, int64 (n,): given ones, or of similar rows; None for no groups."""
    if isinstance(groups, str) and groups == "similar":
        return groups_of_similar_rows(X)
    return None if groups is None else named_groups(groups, X.n_rows, ', or be "similar"')[1]


def _read_features_and_labels(
    estimator: XMLClassifier, given: GivenRows, names: Names | None, earlier: FittedModel | None, adds_rows: bool
) -> tuple[CSR, FeatureSpace, Labels]:
    """Return X, its features and its labels, checked against each other and `earlier`."""
    if given.y is None:
        raise DataError("This XMLClassifier estimator requires y to be passed, but the target y is None; pass labels")
    # Labels are read after X, whose errors tell if X and y are swapped; or when they choose a vectorizer for texts.
    read = cache(lambda: with_new_labels(read_labels(given.y, names), given.label_texts))
    if earlier is None:
        X, features = learn_features(given.X, estimator.vectorizer, given.label_texts, read, given.owner)
    else:
        n_learned = earlier.n_samples_seen if adds_rows else None
        X, features = grow_features(given.X, earlier.features, n_learned, given.label_texts, estimator.n_jobs)
    features, labels = features.with_words(given.feature_names), read()
    if earlier is not None:
        check_form(labels.form, earlier.form)
    if X.n_rows == 0:
        raise DataError("X: must have at least one row, got 0")
    check_lengths(X.n_rows, labels.Y.n_rows)
    if labels.Y.nnz == 0 and earlier is None:  # an earlier model can learn from rows without labels, too
        raise DataError(f"Y: must have at least one label, got none in {labels.Y.n_rows} rows")
    if earlier is not None and not adds_rows:
        _check_not_fewer(labels, earlier)
    return X, features, labels


def _with_label_texts(data: TrainingData, texts: Any) -> TrainingData:
    """Return the data with label rows added at the end."""
    label_rows = read_label_rows(texts, data.names, data.all_rows.X, data.features)
    weight = data.weight
    if weight is not None:
        weight = np.concatenate([weight, np.ones(label_rows.n_rows, np.float32)])
    all_rows = Dataset(stacked([data.all_rows.X, label_rows.X]), stacked([data.all_rows.Y, label_rows.Y]))
    return replace(data, all_rows=all_rows, weight=weight, n_label_rows=label_rows.n_rows)


def _warn_of_features(X: CSR) -> None:
    """Warn if X holds only zeros, or if one column has most of its squared values, as where units differ."""
    features, squares, counts = feature_squares(X)
    if not squares.any() and not X.data.any():
        warn("X: holds nothing but zeros, so that every row gets the same labels, the most frequent ones")
    if X.n_cols < MIN_COLUMNS or not squares.any():
        return
    largest, share = squares.argmax(), squares.max() / squares.sum()
    sizes = np.sqrt(squares[counts > 0] / counts[counts > 0])
    if share > 0.5 and np.sqrt(squares[largest] / counts[largest]) > LARGE * np.median(sizes):
        text = f"X: column {features[largest]} has {share:.0%} of the squared values, so that the others hardly count"
        warn(f"{text}; scale the columns, e.g. by MaxAbsScaler of scikit-learn")


def _check_not_fewer(labels: Labels, earlier: FittedModel) -> None:
    """Raise `DataError` if the rows cannot include all that the earlier model has learned.

    Candidates are learned from the given rows only, and the network would forget missing ones.
    """
    Y, got = labels.Y, ""
    if Y.n_rows < earlier.n_samples_seen:
        got = f"{Y.n_rows} of {earlier.n_samples_seen} rows"
    else:
        counts = Y.column_counts()[: len(earlier.label_counts)]
        if len(fewer := np.flatnonzero(counts < earlier.label_counts)):
            name = shorten(python_values(labels.classes[fewer[:1]])[0])
            got = f"{counts[fewer[0]]} of {earlier.label_counts[fewer[0]]} rows with the label {name}"
    if got:
        text = f"warm_start: fit must be given all rows learned so far, and may be given others, got {got}"
        raise DataError(f"{text}; use partial_fit to learn new rows only, or warm_start=False to start over")


def check_form(form: Form, seen: Form) -> None:
    """Raise `DataError` if one of two forms is one class per row, and the other sets of labels."""
    if (form == "multiclass") != (seen == "multiclass"):
        wanted, got = "label lists or an indicator matrix", "one class a row"
        if seen == "multiclass":
            wanted, got = got, wanted
        raise DataError(f"Y: must have the form of the training labels, {wanted}, got {got}")


def check_lengths(n_rows: int, n_labelled: int) -> None:
    """Raise `DataError` unless X and Y have the same number of rows."""
    if n_rows != n_labelled:
        raise DataError(f"X and Y must have the same number of rows, got {n_rows} and {n_labelled}")


def _read_eval_set(features: FeatureSpace, eval_set: Any, labels: Labels, n_jobs: int | None) -> Dataset | None:
    """Return the rows of `eval_set`, checked; None if there are none."""
    if eval_set is None:
        return None
    if not isinstance(eval_set, tuple | list) or len(eval_set) != 2:
        raise DataError(f"eval_set: must be a pair (X, Y), got {shorten(eval_set)}")
    with problems_named("eval_set"):
        X = read_features(eval_set[0], features, n_jobs)
        check_form(form_of(eval_set[1]), labels.form)
        rows = Dataset(X, read_labels(eval_set[1], labels.classes).Y)
        if rows.n_rows == 0:
            raise DataError("must have at least one row, got 0")
    return rows


def with_validation_share(
    estimator: XMLClassifier, data: TrainingData, earlier: FittedModel | None, seed: int
) -> TrainingData:
    """Return the data with a random share of its rows as validation rows, if early stopping needs some."""
    if not estimator.early_stopping or data.validation is not None:
        return data
    n = data.n_given_rows
    n_validation = max(round(estimator.validation_fraction * n), 1)
    split = with_validation_rows(data, n_validation, seed)
    if split is None:
        got = f"{n} in all" if data.groups is None else f"no group of at most {n_validation} of {n}"
        raise DataError(f"early_stopping: needs rows for training and for validation, got {got}")
    # With the same number of learned rows, the same ones were validation rows before.
    if earlier is not None and split.n_learned_rows != earlier.n_samples_seen:
        text = "early_stopping: some of the validation rows were learned before, so that P@1 looks too good"
        warn(f"{text}; pass eval_set=(X, y) of other rows")
    return split


def with_validation_rows(data: TrainingData, n_rows: int, seed: int) -> TrainingData | None:
    """Return the data with `n_rows` random rows as validation rows; None if there are too few rows."""
    drawn = draw_rows(data.n_given_rows, n_rows, data.groups, np.random.default_rng((seed, VALIDATION)))
    if n_rows >= data.n_given_rows or not len(drawn):
        return None
    kept = np.delete(np.arange(data.all_rows.n_rows), drawn)
    weight, groups = (None if each is None else np.delete(each, drawn) for each in (data.weight, data.groups))
    validation = data.all_rows.take(drawn)
    return replace(data, all_rows=data.all_rows.take(kept), weight=weight, validation=validation, groups=groups)
