"""The model of a verb: read from its folder, and what a classifier and an ensemble have in common."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..data.files import MODEL
from .failures import UsageError
from .parameters import given_parameters

if TYPE_CHECKING:
    from argparse import Namespace

    import numpy as np

    from ..estimators import XMLClassifier, XMLEnsemble


def load_model_of(args: Namespace, data: str) -> XMLClassifier | XMLEnsemble:
    """Return the model in the folder `args.model`, with the parameters of the flags; `data` is named behind it."""
    if not MODEL.is_at(Path(args.model)):
        if MODEL.is_at(Path(data)):
            right = f"xmlsgd {args.verb} {data} {args.model}"
            raise UsageError(f"{args.model}: is not a saved model, but {data} is; the model comes first: {right}")
        from ..data.files.model_files import read_model

        read_model(args.model)  # which says what is wrong, before a second is spent on imports
    from ..estimators import load_model

    given = {"n_jobs": None, **given_parameters(args)}
    model = load_model(args.model, precision=given.pop("precision", None))
    template_of(model).set_params(**given)
    return model


def label_weight_of(
    model: XMLClassifier | XMLEnsemble, power: float, A: float = 0.55, B: float = 1.5
) -> np.ndarray | None:
    """Return what a label counts in rankings, a `power` of its inverse propensity; None where all count the same."""
    if not (math.isfinite(power) and power >= 0):
        raise UsageError(f"--propensity-power: must be 0 or more, got {power:g}")
    if not power:
        return None
    weight: np.ndarray = model.inverse_propensity(A, B) ** power
    if not math.isfinite(weight.max()):
        raise UsageError(f"--propensity-power: makes weights that are not finite, got {power:g}; pass 1 or less")
    return weight


def classifiers_of(model: XMLClassifier | XMLEnsemble) -> list[XMLClassifier]:
    """Return the classifiers of an ensemble, or the one that is none."""
    found: list[XMLClassifier] = getattr(model, "estimators_", [model])
    return found


def template_of(model: XMLClassifier | XMLEnsemble) -> XMLClassifier:
    """Return the classifier that has the parameters of the flags: of an ensemble the one that it clones."""
    found: Any = getattr(model, "estimator", model)
    return cast("XMLClassifier", found)


def parameters_of(model: XMLClassifier | XMLEnsemble) -> dict[str, Any]:
    """Return the parameters of the flags."""
    parameters: dict[str, Any] = template_of(model).get_params()
    if template_of(model) is not model:
        parameters |= {name: getattr(model, name) for name in ("n_estimators", "random_state")}
    return parameters
