"""The estimator as a directory of JSON and plain arrays, and back; see `model_files.write_model` for the format."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..data.files import SYSTEM_ERRORS, read_consistently, update_verified
from ..data.files.model_arrays import ModelArrays
from ..data.files.model_files import ModelFiles, read_model, write_model
from ..data.validation import check_choice, is_integer
from ..devices.base import PRECISIONS
from ..errors import DataError, ModelFileError, shorten
from ..nn.network import state_layout
from ..nn.optimizers import find_optimizer
from .description import describe, described_model
from .inference.compact import CompactParams, compact_params
from .names import MappedNames, names_from_arrays, names_to_arrays
from .placement import make_device, parse_devices, precision_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .classifier import XMLClassifier
    from .ensemble import XMLEnsemble

Kind = TypeVar("Kind")
COUNTS = "classes_counts"  # beside the names of labels, which are no parameters either


def save(model: XMLClassifier, path: str | Path, predict_only: bool, compact: bool) -> None:
    """Write `model`; without the optimizer's state if `predict_only` or `compact`, which also makes arrays small."""
    arrays = label_arrays_of(model)
    if not (predict_only or compact) and model.optimizer_state_ is not None:
        arrays["optimizer_state"] = model.optimizer_state_
    described, more = learned_of(model, compact)
    write(model, path, describe(model) | {"shortlist": described}, arrays | more, compact)


def load(
    kind: type[XMLClassifier],
    path: str | Path,
    predict_only: bool,
    verify: bool,
    device: str | None,
    precision: str | None,
) -> XMLClassifier:
    """Return the model at `path`, checked part by part; one that is saved meanwhile is read as it was or as it is."""
    model = read_checked(path, verify, partial(read_classifier, kind, predict_only))
    predict_on([model], device, precision)
    return model


def predict_on(models: Iterable[XMLClassifier], device: str | None, precision: str | None) -> None:
    """Make models predict on `device` and in `precision`, if given; raise `DataError` for what this machine lacks."""
    if device is not None and len(parse_devices(device)) > 1:
        raise DataError(f"device: must name one device, as in 'cpu', got {shorten(device)}")
    if precision is not None:
        check_choice("precision", precision, PRECISIONS)
    for model in models:
        model.device_ = device or model.device_
        if precision is not None:
            model.precision_ = precision_of(make_device(model.device_, 1, precision))


def label_arrays_of(model: XMLClassifier | XMLEnsemble) -> dict[str, np.ndarray]:
    """Return the arrays of the names of labels, and of features where there are any, and of how many rows had each."""
    arrays = names_to_arrays("classes", model.classes_)
    if (counts := getattr(model, "label_counts_", None)) is not None:
        arrays[COUNTS] = counts
    if hasattr(model, "feature_names_in_"):
        arrays |= names_to_arrays("features", model.feature_names_in_)
    return arrays


def write(
    model: XMLClassifier | XMLEnsemble,
    path: str | Path,
    description: dict[str, Any],
    arrays: dict[str, np.ndarray],
    compact: bool,
) -> None:
    """Write a folder, with the vectorizer if there is one."""
    vectorizer = getattr(model, "vectorizer_", None)
    description |= {"vectorizer": vectorizer is not None, "compact": compact}
    description["samples_seen"] = getattr(model, "n_samples_seen_", 0)
    write_model(path, description, arrays, vectorizer.to_files if vectorizer is not None else None)


def read_checked(path: str | Path, verify: bool, read: Callable[[ModelFiles, Path], Kind]) -> Kind:
    """Return what `read` makes of the files in the folder `path`, which note that they were looked at if `verify`."""

    def read_all(folder: Path) -> tuple[Kind, ModelFiles]:
        files = read_model(folder, verify)
        return read(files, folder), files

    try:
        model, files = read_consistently(Path(path), read_all)
        if verify:
            update_verified(Path(path), files.states)
        return model
    except OSError as error:
        if error.errno in SYSTEM_ERRORS or (error.errno is None and error.filename is None):  # a library's
            raise
        raise ModelFileError(f"{error.filename or path}: cannot be read, got {error.strerror or error}") from error


def learned_of(model: XMLClassifier, compact: bool) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    """Return what describes the model's shortlist, None without one, and the arrays of all that was learned.

    Those of a model that was loaded compact are the arrays that were read.
    """
    held, layout = model._params, model.network_.layout
    if isinstance(held, CompactParams) and compact:
        return held.shortlist, held.arrays
    if isinstance(held, CompactParams):
        raise DataError("save: a model that was loaded compact has no float32 weights; pass compact=True")
    arrays = compact_params(model.params_, layout) if compact else {"params": model.params_}
    if model.candidates_ is None:
        return None, arrays
    from ..candidates.compact import compact_arrays
    from ..candidates.serialization import to_arrays  # here, so that a model without one loads no Numba

    described, lists = to_arrays(model.candidates_)
    return described, arrays | (compact_arrays(lists) if compact else lists)


def read_classifier(kind: type[XMLClassifier], predict_only: bool, files: ModelFiles, path: Path) -> XMLClassifier:
    """Return the model of which these are the files."""
    description, compact, saved = opened(files, path)
    model = described_model(kind, description, path)
    model._classes = read_label_names(saved, model.network_.n_labels, compact)
    read_label_counts(model, saved, description)
    read_feature_names(model, saved)
    read_learned(model, saved, description.get("shortlist"), compact)
    if not predict_only:
        _read_state(model, saved, compact)
    read_vectorizer(model, description, path)
    return model


def opened(files: ModelFiles, path: Path) -> tuple[dict[str, Any], bool, ModelArrays]:
    """Return the description of a model, whether it is compact, and its arrays."""
    compact = files.description.get("compact") is True
    # Of a compact model, which may not take long to open, numbers that were looked at once are not again.
    return files.description, compact, ModelArrays(files.arrays, path, check=not (compact and files.noted))


def read_label_names(saved: ModelArrays, n_labels: int, compact: bool) -> np.ndarray | MappedNames:
    """Return the names of labels; those of a compact model are read when asked for."""
    arrays, path = saved.arrays, saved.path
    names = MappedNames("classes", arrays, path) if compact else names_from_arrays("classes", arrays, path)
    if len(names) != n_labels:
        raise ModelFileError(f"{path}: must name {n_labels} labels, got {len(names)}")
    return names


def read_label_counts(model: XMLClassifier | XMLEnsemble, saved: ModelArrays, description: dict[str, Any]) -> None:
    """Read how many rows had each label, and of how many rows; None where the model was saved without."""
    n_rows = description.get("samples_seen", 0)
    if not is_integer(n_rows) or not 0 <= n_rows < 1 << 62:
        raise ModelFileError(f"{saved.path}: samples_seen must be a number of rows, got {shorten(n_rows)}")
    known = COUNTS in saved.arrays
    counts = saved.array(COUNTS, np.int64, model.network_.n_labels) if known else None
    if counts is not None and saved.check and ((counts < 0) | (counts > n_rows)).any():
        got = f"{counts.min()} to {counts.max()}"
        raise ModelFileError(f"{saved.path}: {COUNTS} must be between 0 and the {n_rows} rows, got {got}")
    model.label_counts_ = counts
    model.n_samples_seen_ = n_rows


def read_feature_names(model: XMLClassifier | XMLEnsemble, saved: ModelArrays) -> None:
    """Read the names of features, if there are any."""
    if "features_text" in saved.arrays:
        model.feature_names_in_ = names_from_arrays("features", saved.arrays, saved.path)
        if len(model.feature_names_in_) != model.n_features_in_:
            got = len(model.feature_names_in_)
            raise ModelFileError(f"{saved.path}: must name {model.n_features_in_} features, got {got}")


def read_vectorizer(model: XMLClassifier | XMLEnsemble, description: dict[str, Any], path: Path) -> None:
    """Read what turns texts into rows, if there is one."""
    if description.get("vectorizer"):
        from ..data.vectorizer import TextVectorizer

        model.vectorizer_ = TextVectorizer.from_files(path)


def read_learned(model: XMLClassifier, saved: ModelArrays, described: Any, compact: bool) -> None:
    """Read parameters and shortlist, which stay mapped."""
    network = model.network_
    model.optimizer_state_, model._scorers, model.candidates_ = None, {}, None
    if compact:
        learned = {name: array for name, array in saved.arrays.items() if not name.startswith(("classes", "features"))}
        model._params = CompactParams.of(network.layout, replace(saved, arrays=learned), described)
    else:
        model.params_ = saved.finite("params", network.layout.size)
    if described is not None:
        from ..candidates.serialization import from_arrays  # here, so that a model without one loads no Numba

        model.candidates_ = from_arrays(described, saved, (network.n_features, network.n_labels), compact)


def _read_state(model: XMLClassifier, saved: ModelArrays, compact: bool) -> None:
    """Read what learning goes on from, into memory that can be written."""
    if "optimizer_state" not in saved.arrays:
        how = "compact" if compact else "predict_only"
        raise ModelFileError(f"{saved.path}: cannot learn on, saved with {how}; load it predict_only")
    size = state_layout(model.network_.layout, find_optimizer(model._optimizer_kind)()).size
    model.optimizer_state_ = saved.finite("optimizer_state", size).copy()
    model.params_ = model.params_.copy()
