"""Load the model of a command, with its labels and options of reading; treat classifiers and ensembles alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..data.files.manifest import MODEL
from .exit_codes import UsageError
from .model_folder import saved_names, saved_options

if TYPE_CHECKING:
    import numpy as np

    from ..data.csr import Dataset
    from ..estimators import Model, XMLClassifier
    from .input_options import InputOptions
    from .results import UriOf


def check_model(folder: str, data: str = "", command: str = "") -> None:
    """Raise an error if a folder holds no model; data : the next argument of the command, which may be the model."""
    if not MODEL.exists_at(Path(folder)):
        if data and MODEL.exists_at(Path(data)):
            right = f"xmlsgd {command} {data} {folder}"
            raise UsageError(f"{folder}: is not a saved model, but {data} is; the model comes first: {right}")
        from ..data.files.folders import read_folder

        read_folder(folder)


def read_predictor(folder: str, parameters: dict[str, Any], data: str = "", command: str = "") -> Model:
    """Return the model in a folder, with `parameters` set; data, command : as in `check_model`."""
    check_model(folder, data, command)  # at once; with the imports below it would take seconds
    from ..estimators import load_model

    given = {"n_jobs": None, **parameters}
    model = load_model(folder, precision=given.pop("precision", None))
    template_of(model).set_params(**given)
    return model


def read_learner(folder: str, parameters: dict[str, Any]) -> XMLClassifier:
    """Return the classifier in a folder, with `parameters` set; raise an error if it cannot learn more rows."""
    from ..estimators import XMLClassifier

    given = {"n_jobs": None, **parameters}  # not the threads of its training
    model = XMLClassifier.load(folder, precision=given.pop("precision", None)).set_params(**given)
    model.fitted_.check_trainable(folder)
    return model


def finder_of_uris(names_of_uris: Mapping[str, str] | None) -> UriOf | None:
    """Return the function that finds the URI of a name by a vocabulary; None without a vocabulary."""
    from ..data.vocabulary import uri_of

    uris = {name: uri for uri, name in (names_of_uris or {}).items()}
    return partial(uri_of, uris=uris) if uris else None


def options_of_model(options: InputOptions, folder: str, model: Model) -> InputOptions:
    """Return options that read data as the training data was read, with names of URIs as the model knows them."""
    from ..data.vocabulary import uris_among

    names = saved_names(folder)
    if names is None and options.vocabulary is not None:  # the names of its labels may be URIs
        names = uris_among([str(name) for name in model.classes_.tolist()])
    return replace(options.with_saved(saved_options(folder) or {}), names=names)


def rename_labels(model: XMLClassifier, known: Mapping[str, str], vocabulary: str) -> tuple[dict[str, str], int]:
    """Give the labels of a model the names that a file has for their URIs; return all names, and how many changed.

    known : the names of URIs before. A label named by its URI gets its name. Where a label without a URI bears the new
    name, the URI follows it.
    """
    from ..data.vocabulary import label_of, read_vocabulary
    from ..estimators.names import label_array

    names, classes, changed = read_vocabulary(vocabulary, known, renaming=True), model.classes_.tolist(), {}
    learned = set(classes)
    without_uri = learned.difference(known.get(uri, uri) for uri in names)
    for uri, name in names.items():
        old = known.get(uri, uri)
        if old != name and old in learned:
            names[uri] = changed[old] = f"{label_of(uri, name)} <{uri}>" if name in without_uri else name
    if changed:
        named = label_array([changed.get(name, name) for name in classes], "classes")
        model.fitted_ = replace(model.fitted_, names=named)
    return names, len(changed)


def label_weight_of(model: Model, power: float, A: float, B: float) -> np.ndarray | None:
    """Return each label's weight in rankings, a power of its inverse propensity; None for power 0."""
    if not power:
        return None
    weight: np.ndarray = model.inverse_propensity(A, B) ** power
    if not math.isfinite(weight.max()):
        raise UsageError(f"--propensity-power: makes weights that are not finite, got {power:g}; pass 1 or less")
    return weight


def names_in(rows: Dataset, model: Model) -> Sequence[Any]:
    """Return the names of the labels of rows; if they have none, names of the model, and numbers for other labels."""
    known = model.classes_.tolist()
    return rows.label_names or with_numbers(known, rows.n_labels)


def with_numbers(known: Sequence[Any], n_labels: int) -> list[Any]:
    """Return names, followed by numbers for the labels without a name."""
    from ..estimators.names import first_number

    first = first_number(known)
    return [*known, *range(first + len(known), first + n_labels)]


def classifiers_of(model: Model) -> list[XMLClassifier]:
    """Return the classifiers of an ensemble, or the single classifier."""
    return getattr(model, "estimators_", [model])


def template_of(model: Model) -> XMLClassifier:
    """Return the classifier whose parameters the flags set; of an ensemble, the one that it clones."""
    return cast("XMLClassifier", getattr(model, "estimator", model))


def parameters_of(model: Model) -> dict[str, Any]:
    """Return the parameters of a model, of an ensemble its own ones, too."""
    parameters: dict[str, Any] = template_of(model).get_params(deep=False)
    if template_of(model) is not model:
        parameters |= {name: getattr(model, name) for name in ("n_estimators", "random_state")}
    return parameters
