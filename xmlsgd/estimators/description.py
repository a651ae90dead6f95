"""Describe a fitted estimator as JSON (parameters, shape, counters, history), and read the description, checked."""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import __version__, algorithms
from ..algorithms.base import Algorithm
from ..algorithms.options import read_field, write_field
from ..data.validation import is_integer, is_number
from ..data.vectorizer import TextVectorizer
from ..errors import DataError, ModelFileError, shorten
from ..nn.losses import find_loss
from ..nn.network import Network
from ..nn.optimizers import Optimizer, find_optimizer, optimizer_names
from .calibration import BetaCalibration
from .parameters import check_parameters
from .workers import parse_devices

if TYPE_CHECKING:
    from collections.abc import Callable

    from .classifier import XMLClassifier

CLASSIFIER, ENSEMBLE = "XMLClassifier", "XMLEnsemble"  # kinds of described estimators
TO_LOAD_ENSEMBLE = (
    "; xmlsgd.load_model reads it, to predict; an ensemble cannot be trained further; train again with --overwrite"
)
FORMS = ("sparse", "dense", "lists", "multiclass")


def describe(model: XMLClassifier) -> dict[str, Any]:
    """Return the description of a fitted estimator, for JSON; raise `DataError` for invalid parameters."""
    fitted = model.fitted_
    parameters = {name: _to_json(name, value) for name, value in model.get_params(deep=False).items()}
    check_parameters(model)  # `set_params` does not, and a model with invalid ones could not be loaded
    return {
        "estimator": CLASSIFIER,
        "xmlsgd": __version__,
        "parameters": parameters,
        "network": asdict(fitted.network),
        "label_form": fitted.form,
        "device": fitted.device,
        "precision": fitted.precision,
        "seed": fitted.seed,
        "epochs": fitted.n_epochs,
        "history": fitted.history,
        "calibration": astuple(fitted.calibration),
    }


def read_parameters(kind: type[XMLClassifier], description: dict[str, Any], path: Path) -> XMLClassifier:
    """Return the unfitted estimator of a description; raise `ModelFileError` for invalid parameters."""
    if (found := description.get("estimator")) != CLASSIFIER:
        remedy = TO_LOAD_ENSEMBLE if found == ENSEMBLE else ""
        raise ModelFileError(f"{path}: must hold an {CLASSIFIER}, got {shorten(found)}{remedy}")
    model = kind(**_parameters(kind, description.get("parameters"), path))
    try:
        check_parameters(model)
    except (TypeError, ValueError, OverflowError) as error:  # for a value of an odd type, Python itself may raise it
        raise ModelFileError(f"{path}: parameters: {error}") from error
    return model


def read_fields(description: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the fields of `FittedModel` in a description; raise `ModelFileError` for invalid ones."""
    form, precision, device = (description.get(name) for name in ("label_form", "precision", "device"))
    if form not in FORMS:
        raise ModelFileError(f"{path}: label_form must be one of {', '.join(FORMS)}, got {shorten(form)}")
    if precision not in ("float32", "bfloat16"):
        raise ModelFileError(f"{path}: precision must be 'float32' or 'bfloat16', got {shorten(precision)}")
    try:
        (device,) = parse_devices(device)
    except ValueError as error:
        raise ModelFileError(f"{path}: device must be one device, got {shorten(device)}") from error
    numbers = {"seed": "seed", "n_epochs": "epochs"}
    return {
        "network": _network(description.get("network"), path),
        "form": form,
        "device": device,
        "precision": precision,
        "history": _history(description.get("history"), path),
        "calibration": _calibration(description.get("calibration"), path),
        **{field: read_count(description, name, path) for field, name in numbers.items()},
    }


def _to_json(name: str, value: Any) -> Any:
    """Return the value of constructor parameter `name` as JSON."""
    if isinstance(value, Optimizer):
        if value.name not in optimizer_names() or find_optimizer(value.name) is not type(value):
            raise ModelFileError(f"{name}: only optimizers of this package can be saved, got {shorten(value)}")
        return {"name": value.name, "numbers": asdict(value)}
    if isinstance(value, np.generic):
        return value.item()
    if name == "hidden_layer_sizes" and not isinstance(value, str):
        return [int(size) for size in value]
    if name == "class_weight" and isinstance(value, dict):
        return [[key.item() if isinstance(key, np.generic) else key, float(weight)] for key, weight in value.items()]
    if name == "random_state":
        return seed_to_json(value)
    if isinstance(value, Algorithm):
        return _algorithm_to_json(value)
    if isinstance(value, TextVectorizer):
        return value.options_as_json
    return value


def seed_to_json(random_state: Any) -> int | None:
    """Return a `random_state` as JSON; None for a generator, as the seed drawn from it is saved separately."""
    return int(random_state) if isinstance(random_state, int | np.integer) else None


def _algorithm_to_json(algorithm: Algorithm) -> dict[str, Any]:
    """Return module and fields of an algorithm of this package, as JSON."""
    kind = type(algorithm)
    package, _, module = kind.__module__.rpartition(".")
    if package != algorithms.__name__ or not is_dataclass(algorithm):
        raise ModelFileError(f"algorithm: only algorithms of this package can be saved, got {shorten(algorithm)}")
    numbers = {field.name: write_field(getattr(algorithm, field.name)) for field in fields(algorithm) if field.init}
    try:
        json.dumps(numbers, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ModelFileError(
            f"algorithm: its fields must be numbers, texts or rules of this package, got {shorten(numbers)}"
        ) from error
    return {"module": module, "numbers": numbers}


def _algorithm(saved: Any) -> Algorithm:
    """Return the algorithm that `_algorithm_to_json` described; nothing outside of `xmlsgd.algorithms` is imported."""
    kind = algorithms.algorithm_class(saved["module"])
    numbers = {
        name: tuple(value) if isinstance(value, list) else value for name, value in dict(saved["numbers"]).items()
    }
    texts = {name: read_field(kind, name, value) for name, value in numbers.items() if isinstance(value, str)}
    return kind(**{**numbers, **texts})


# How to read parameters that JSON cannot hold as they are; invalid ones raise KeyError, TypeError or ValueError.
READERS: dict[str, Callable[[Any], Any]] = {
    "hidden_layer_sizes": tuple,
    "class_weight": dict,
    "optimizer": lambda saved: find_optimizer(saved["name"])(**saved["numbers"]),
    "algorithm": _algorithm,
    "vectorizer": TextVectorizer.from_options,
}


def _parameters(kind: type[XMLClassifier], saved: Any, path: Path) -> dict[str, Any]:
    """Return the arguments of the constructor."""
    unknown = set(saved) - set(kind._get_param_names()) if isinstance(saved, dict) else saved
    if unknown or not isinstance(saved, dict):
        raise ModelFileError(f"{path}: parameters must be among those of XMLClassifier, got {shorten(unknown)}")
    read = dict(saved)
    for name, value in saved.items():
        if isinstance(value, dict | list):
            try:
                read[name] = READERS[name](value)
            except (KeyError, TypeError, ValueError) as error:
                reason = f"; {error}" if isinstance(error, DataError) else ""
                raise ModelFileError(f"{path}: {name} cannot be read, got {shorten(value, 100)}{reason}") from error
    return read


def _network(saved: Any, path: Path) -> Network:
    """Return the network (shape and loss), checked."""
    names = {field.name for field in fields(Network)}
    if not isinstance(saved, dict) or set(saved) != names:
        raise ModelFileError(f"{path}: network must have the fields {', '.join(sorted(names))}, got {shorten(saved)}")
    try:
        find_loss(saved["loss"])
        return Network(**saved | {"hidden": tuple(saved["hidden"])})
    except (DataError, TypeError) as error:
        raise ModelFileError(f"{path}: network: {error}") from error


def read_count(description: dict[str, Any], name: str, path: Path) -> int:
    """Return entry `name` of the description, a count of at least 0."""
    value: Any = description.get(name)
    if is_integer(value) and 0 <= value < 1 << 62:
        return int(value)
    raise ModelFileError(f"{path}: {name} must be a number of at least 0, got {shorten(value)}")


def _calibration(saved: Any, path: Path) -> BetaCalibration:
    """Return the calibration, checked."""
    try:
        low, high, intercept = saved
        return BetaCalibration(low, high, intercept)
    except (TypeError, ValueError) as error:
        wanted = "two weights above 0 and an intercept"
        raise ModelFileError(f"{path}: calibration must be {wanted}, got {shorten(saved)}") from error


def _history(records: Any, path: Path) -> list[dict[str, Any]]:
    """Return the epoch records, checked to have a loss each."""
    if not isinstance(records, list) or not all(isinstance(r, dict) and is_number(r.get("loss")) for r in records):
        raise ModelFileError(f"{path}: history must be a list of records, got {shorten(records)}")
    return records
