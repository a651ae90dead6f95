"""Save and load estimators as folders of JSON and plain arrays; `folders.write_folder` describes the format.

The folder of an ensemble holds the shared names once, and the arrays of each classifier with its number as a prefix.
`read_checked` refuses a damaged folder: `data.files.manifest` checks sizes and checksums, `data.files.folders` types
and shapes of arrays, and each part the values that it reads.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .. import __version__
from ..data.files.atomic import read_consistently
from ..data.files.folders import FolderArrays, FolderContent, read_folder, write_folder
from ..data.files.manifest import update_verified
from ..data.files.system_errors import is_system_error
from ..data.validation import check_choice, is_integer, is_positive_integer
from ..data.vectorizer import TextVectorizer
from ..devices.base import PRECISIONS
from ..errors import DataError, ModelFileError, shorten
from .dense_features import read_dense_features
from .description import ENSEMBLE, describe, read_count, read_fields, read_parameters, seed_to_json
from .fitted import FittedModel
from .inference.compact import CompactParams, compact_params
from .inputs import FeatureSpace
from .names import MappedNames, names_to_arrays
from .thresholds import Thresholds
from .workers import make_device, parse_devices, precision_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from .classifier import XMLClassifier
    from .ensemble import Model, XMLEnsemble

Kind = TypeVar("Kind")
THRESHOLDS = "thresholds"
WORDS = "features_words"
COUNTS = "classes_counts"  # begins as the names of labels do, as the classifiers of an ensemble share both
ENSEMBLE_PARAMETERS = ("n_estimators", "random_state", "estimator_random_state")  # saved apart from its classifiers


def save(model: Model, path: str | PathLike[str], *, compact: bool = False) -> None:
    """Write the model to a folder of JSON and plain arrays, with checksums and without code.

    An earlier model at `path` is replaced in one step when the new one is complete; if writing fails, it does not
    change.

    Parameters
    ----------
    path : path
        The folder.
    compact : bool
        Whether to round weights to int8, which changes P@k by hundredths and makes the folder about half as large. A
        compact model can predict, but not learn.

    Raises
    ------
    ModelFileError
        If `path` exists and is not a model.
    """
    check_is_fitted(model)
    fitted = model.fitted_
    description, arrays = contents_of(model, compact)
    vectorizer = fitted.features.vectorizer
    write_folder(Path(path), description, arrays, vectorizer.to_files if vectorizer is not None else None)


def load(
    kind: type[XMLClassifier], path: str | PathLike[str], *, verify: bool = True,
    device: str | None = None, precision: str | None = None,
) -> XMLClassifier:  # fmt: skip
    """Return the model that `save` wrote; its arrays are read-only memory maps.

    A compact model opens in milliseconds; its pointers and indices are checked during prediction.

    Parameters
    ----------
    path : path
        The folder.
    verify : bool
        Whether to compare checksums, except for files unchanged since they were last compared (`verified.json`).
    device, precision : str, optional
        Device and precision for prediction, such as "cpu" and "float32"; None for those that were saved.

    Raises
    ------
    ModelFileError
        If the folder was not written by `save`, or was altered.
    """
    # If another process saves a model there at the same time, either the old or the new one is read.
    model = read_checked(path, verify, partial(read_classifier, kind))
    model.fitted_ = predicting_on(model.fitted_, device, precision)
    return model


def predicting_on(fitted: FittedModel, device: str | None, precision: str | None) -> FittedModel:
    """Return the model with another device and precision, if given; raise `DataError` for those that are missing."""
    if device is not None and len(parse_devices(device)) > 1:
        raise DataError(f"device: must name one device, as in 'cpu', got {shorten(device)}")
    moved = fitted if device is None else replace(fitted, device=device)
    if precision is None:
        return moved
    check_choice("precision", precision, PRECISIONS)
    return replace(moved, precision=precision_of(make_device(moved.device, 1, precision)))


def shared_arrays(fitted: FittedModel) -> dict[str, np.ndarray]:
    """Return the arrays that the classifiers of an ensemble share: names of labels and features, label counts."""
    arrays = names_to_arrays("classes", fitted.classes) | {COUNTS: fitted.label_counts}
    if fitted.features.names is not None:
        arrays |= names_to_arrays("features", fitted.features.names)
    if fitted.features.words is not None:
        arrays |= names_to_arrays(WORDS, np.asarray(fitted.features.shown))
    if fitted.features.dense is not None:
        arrays |= fitted.features.dense.arrays
    return arrays


def contents_of(model: Model, compact: bool) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description and the arrays of a model; compact arrays if `compact`."""
    fitted, arrays = model.fitted_, shared_arrays(model.fitted_)
    if hasattr(model, "estimators_"):
        description, more = _contents_of_ensemble(model, compact)
    else:
        described, more = learned_arrays(fitted, compact)
        description = describe(model) | {"candidates": described}
    has_vectorizer = fitted.features.vectorizer is not None
    description |= {
        "vectorizer": has_vectorizer, "damped": fitted.features.damped, "compact": compact,
        "dense": fitted.features.dense and fitted.features.dense.scalars, "samples_seen": fitted.n_samples_seen,
    }  # fmt: skip
    return description, arrays | more


def read_checked(path: str | PathLike[str], verify: bool, read: Callable[[FolderContent, Path], Kind]) -> Kind:
    """Return the result of `read` for the files in folder `path`; if `verify`, record that they are verified."""

    def read_all(folder: Path) -> tuple[Kind, FolderContent]:
        files = read_folder(folder, verify)
        return read(files, folder), files

    try:
        model, files = read_consistently(Path(path), read_all)
        if verify:
            update_verified(Path(path), files.listed.states)
        return model
    except OSError as error:
        if is_system_error(error) or (error.errno is None and error.filename is None):  # raised by a library
            raise
        raise ModelFileError(f"{error.filename or path}: cannot be read, got {error.strerror or error}") from error


def learned_arrays(fitted: FittedModel, compact: bool) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    """Return the description of the candidate model (None without) and the arrays of everything that was learned.

    For a model that was loaded compact, these are the arrays that were read.
    """
    params, layout = fitted.params, fitted.network.layout
    if isinstance(params, CompactParams):
        if compact:
            return params.candidates, params.arrays
        raise DataError("save: a model that was loaded compact has no float32 weights; pass compact=True")
    arrays = compact_params(params, layout) if compact else {"params": params}
    if fitted.thresholds is not None:
        arrays[THRESHOLDS] = fitted.thresholds.array
    if fitted.candidates is None:
        return None, arrays
    from ..candidates.compact import compact_arrays
    from ..candidates.serialization import to_arrays  # here, so that a model without candidates imports no Numba

    described, lists = to_arrays(fitted.candidates)
    return described, arrays | (compact_arrays(lists) if compact else lists)


def read_classifier(kind: type[XMLClassifier], files: FolderContent, path: Path) -> XMLClassifier:
    """Return the classifier in these files."""
    compact, saved = is_compact(files), arrays_of(files, path)
    model = read_parameters(kind, files.description, path)
    fields = read_fields(files.description, path)
    shared = read_shared(files, saved, fields["network"])
    model.fitted_ = read_learned(fields | shared, saved, files.description.get("candidates"), compact)
    return model


def is_compact(files: FolderContent) -> bool:
    """Return whether the model was saved with compact arrays."""
    return files.description.get("compact") is True


def arrays_of(files: FolderContent, path: Path) -> FolderArrays:
    """Return the arrays of a model; those of a compact one are not checked once they are verified, which is quicker."""
    is_trusted = is_compact(files) and files.listed.all_verified
    remedy = "; the model may be of another version: train it or save it again"
    return FolderArrays(files.arrays, path, not is_trusted, remedy=remedy)


def read_shared(files: FolderContent, saved: FolderArrays, network: Any) -> dict[str, Any]:
    """Return the fields of `FittedModel` that the classifiers of an ensemble share."""
    path = saved.path
    names = _names_of("labels", "classes", saved, network.n_labels, lazily=is_compact(files))
    dense = read_dense_features(files.description.get("dense"), saved, network.n_features)
    n_features = network.n_features - (dense.n_landmarks if dense else 0)
    features, words = (
        _names_of("features", name, saved, n_features, lazily=name == WORDS) if f"{name}_text" in saved.arrays else None
        for name in ("features", WORDS)
    )
    vectorizer = TextVectorizer.from_files(path) if files.description.get("vectorizer") else None
    damped = files.description.get("damped")
    if not isinstance(damped, bool):
        raise ModelFileError(f"{path}: damped must be true or false, got {shorten(damped)}; fit the model again")
    n_rows = read_count(files.description, "samples_seen", path)
    counts = saved.array(COUNTS, np.int64, network.n_labels)
    if saved.check_values and ((counts < 0) | (counts > n_rows)).any():
        got = f"{counts.min()} to {counts.max()}"
        raise ModelFileError(f"{path}: {COUNTS} must be between 0 and the {n_rows} rows, got {got}")
    return {
        "names": names,
        "features": FeatureSpace(n_features, features, vectorizer, words=words, damped=damped, dense=dense),
        "label_counts": counts,
        "n_samples_seen": n_rows,
    }


def _names_of(what: str, name: str, saved: FolderArrays, size: int, *, lazily: bool) -> Any:
    """Return the names in the arrays that begin with `name`, as `MappedNames` or, unless `lazily`, as an array.

    what : what they name, of which there are `size`.
    """
    mapped = MappedNames(name, saved.arrays, saved.path)
    names = mapped if lazily else mapped.array
    if len(names) != size:
        raise ModelFileError(f"{saved.path}: {name} must name {size} {what}, got {len(names)}")
    return names


def read_learned(fields: dict[str, Any], saved: FolderArrays, described: Any, compact: bool) -> FittedModel:
    """Return the fitted model, given its other fields, with memory-mapped parameters and candidates."""
    network, params, candidates = fields["network"], None, None
    if compact:
        learned = {name: array for name, array in saved.arrays.items() if not name.startswith(("classes", "features"))}
        params = CompactParams.of(network.layout, replace(saved, arrays=learned), described)
    else:
        params = saved.finite("params", network.layout.size)
    if described is not None:
        from ..candidates.serialization import from_arrays  # here, so that a model without candidates imports no Numba

        candidates = from_arrays(described, saved, (network.n_features, network.n_labels), compact)
    thresholds = None
    if THRESHOLDS in saved.arrays:
        found = saved.array(THRESHOLDS, np.float64, network.n_labels + 1)
        if saved.check_values and not ((found >= 0) & (found <= 1)).all():
            raise ModelFileError(
                f"{saved.path}: {THRESHOLDS} must be between 0 and 1, got {found.min():g} to {found.max():g}"
            )
        thresholds = Thresholds.of(found)
    return FittedModel(**fields, params=params, candidates=candidates, thresholds=thresholds)


def _contents_of_ensemble(ensemble: XMLEnsemble, compact: bool) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description of an ensemble and the arrays of its classifiers."""
    arrays: dict[str, np.ndarray] = {}
    members = []
    for number, member in enumerate(ensemble.estimators_):
        described, more = learned_arrays(member.fitted_, compact)
        members.append(describe(member) | {"candidates": described})
        arrays |= {prefix_of(number) + name: array for name, array in more.items()}
    seeds = ensemble.random_state, getattr(ensemble.estimator, "random_state", None)
    parameters = dict(zip(ENSEMBLE_PARAMETERS, (int(ensemble.n_estimators), *map(seed_to_json, seeds)), strict=True))
    return {"estimator": ENSEMBLE, "xmlsgd": __version__, "parameters": parameters, "members": members}, arrays


def read_estimators(
    ensemble: type[XMLEnsemble], classifier: type[XMLClassifier], files: FolderContent, path: Path
) -> tuple[XMLEnsemble | None, list[XMLClassifier]]:
    """Return the ensemble in these files and its classifiers; None and the classifier if there is no ensemble."""
    if files.description.get("estimator") == ENSEMBLE:
        return _read_ensemble(ensemble, classifier, files, path)
    return None, [read_classifier(classifier, files, path)]


def prefix_of(number: int) -> str:
    """Return the prefix of array names of classifier `number`, from 0, of an ensemble."""
    return f"member{number}_"


def _read_ensemble(
    kind: type[XMLEnsemble], member: type[XMLClassifier], files: FolderContent, path: Path
) -> tuple[XMLEnsemble, list[XMLClassifier]]:
    """Return the ensemble in these files, and its classifiers."""
    described = files.description.get("members")
    if not isinstance(described, list) or not described or not all(isinstance(each, dict) for each in described):
        raise ModelFileError(f"{path}: members must be a list of descriptions, got {shorten(described)}")
    members = [read_parameters(member, each, path) for each in described]
    fields = [read_fields(each, path) for each in described]
    networks = [each["network"] for each in fields]
    kinds = [(n.n_features, n.n_labels, n.loss, each["form"]) for n, each in zip(networks, fields, strict=True)]
    for other in kinds[1:]:
        if other != kinds[0]:
            raise ModelFileError(
                f"{path}: members must agree in features, labels, loss and form, got {kinds[0]} and {other}"
            )
    given = _ensemble_parameters(files.description.get("parameters"), path)
    saved, compact = arrays_of(files, path), is_compact(files)
    shared = read_shared(files, saved, networks[0])
    for number, each in enumerate(members):
        arrays = saved.part(prefix_of(number))
        each.fitted_ = read_learned(fields[number] | shared, arrays, described[number].get("candidates"), compact)
    template = member(**{**members[0].get_params(deep=False), "random_state": given["estimator_random_state"]})
    return kind(template, given["n_estimators"], random_state=given["random_state"]), members


def _ensemble_parameters(given: Any, path: Path) -> dict[str, Any]:
    """Return the parameters of the ensemble, apart from those of its classifiers, checked."""
    fits = (
        isinstance(given, dict)
        and set(given) == set(ENSEMBLE_PARAMETERS)
        and is_positive_integer(given["n_estimators"])
    )
    if not fits or not all(given[name] is None or is_integer(given[name]) for name in ENSEMBLE_PARAMETERS[1:]):
        raise ModelFileError(f"{path}: parameters must be {', '.join(ENSEMBLE_PARAMETERS)}, got {shorten(given)}")
    return given
