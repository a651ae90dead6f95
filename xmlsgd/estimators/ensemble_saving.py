"""An ensemble as a directory: names once, and what each classifier has learned under its number."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..data.validation import is_integer, is_positive_integer
from ..errors import ModelFileError, shorten
from .classifier import XMLClassifier
from .description import ENSEMBLE, check_estimator, describe, described_model, seed_to_json
from .saving import (
    label_arrays_of,
    learned_of,
    opened,
    predict_on,
    read_checked,
    read_classifier,
    read_feature_names,
    read_label_counts,
    read_label_names,
    read_learned,
    read_vectorizer,
    write,
)

if TYPE_CHECKING:
    from ..data.files.model_files import ModelFiles
    from .ensemble import XMLEnsemble


def save(ensemble: XMLEnsemble, path: str | Path, compact: bool) -> None:
    """Write `ensemble`, its arrays small if `compact`."""
    arrays, members = label_arrays_of(ensemble), []
    for number, member in enumerate(ensemble.estimators_):
        described, more = learned_of(member, compact)
        members.append(describe(member) | {"shortlist": described})
        arrays |= {prefix_of(number) + name: array for name, array in more.items()}
    parameters = {"n_estimators": int(ensemble.n_estimators), "random_state": seed_to_json(ensemble.random_state)}
    description = {"estimator": ENSEMBLE, "xmlsgd": __version__, "parameters": parameters, "members": members}
    write(ensemble, path, description, arrays, compact)


def load(
    kind: type[XMLEnsemble], path: str | Path, verify: bool, device: str | None, precision: str | None
) -> XMLEnsemble:
    """Return the ensemble at `path`, checked as a classifier is, to predict on `device` in `precision`, if given."""
    ensemble = read_checked(path, verify, partial(read_ensemble, kind))
    predict_on(ensemble.estimators_, device, precision)
    return ensemble


def load_either(
    kind: type[XMLEnsemble], path: str | Path, verify: bool, device: str | None, precision: str | None
) -> XMLClassifier | XMLEnsemble:
    """Return what lies at `path`, an ensemble, or a classifier to predict only."""

    def read(files: ModelFiles, folder: Path) -> XMLClassifier | XMLEnsemble:
        if files.description.get("estimator") == ENSEMBLE:
            return read_ensemble(kind, files, folder)
        return read_classifier(XMLClassifier, True, files, folder)

    model = read_checked(path, verify, read)
    predict_on(model.estimators_ if isinstance(model, kind) else [model], device, precision)
    return model


def read_ensemble(kind: type[XMLEnsemble], files: ModelFiles, path: Path) -> XMLEnsemble:
    """Return the ensemble of which these are the files."""
    description, compact, saved = opened(files, path)
    check_estimator(description, ENSEMBLE, path)
    members = _described(description.get("members"), path)
    given = _parameters(description.get("parameters"), path)
    template = XMLClassifier(**{**members[0].get_params(deep=False), "random_state": None})
    ensemble = kind(template, given["n_estimators"], random_state=given["random_state"])
    ensemble.take(members, read_label_names(saved, members[0].network_.n_labels, compact))
    for model in (ensemble, *members):
        read_label_counts(model, saved, description)
    read_feature_names(ensemble, saved)
    for number, (member, described) in enumerate(zip(members, description["members"], strict=True)):
        read_learned(member, saved.part(prefix_of(number)), described.get("shortlist"), compact)
    read_vectorizer(ensemble, description, path)
    return ensemble


def prefix_of(number: int) -> str:
    """Return what the names of the arrays of an ensemble's classifier begin with, which has a number from 0."""
    return f"member{number}_"


def _described(described: Any, path: Path) -> list[XMLClassifier]:
    """Return the classifiers without arrays; `ModelFileError` unless they answer the same question."""
    if not isinstance(described, list) or not described or not all(isinstance(each, dict) for each in described):
        raise ModelFileError(f"{path}: members must be a list of descriptions, got {shorten(described)}")
    members = [described_model(XMLClassifier, each, path) for each in described]
    kinds = [(m.network_.n_features, m.network_.n_labels, m.network_.loss, m.label_form_) for m in members]
    for other in kinds[1:]:
        if other != kinds[0]:
            raise ModelFileError(
                f"{path}: members must agree in features, labels, loss and form, got {kinds[0]} and {other}"
            )
    return members


def _parameters(given: Any, path: Path) -> dict[str, Any]:
    """Return the parameters of the ensemble itself."""
    fits = (
        isinstance(given, dict)
        and set(given) == {"n_estimators", "random_state"}
        and is_positive_integer(given["n_estimators"])
    )
    if not fits or not (given["random_state"] is None or is_integer(given["random_state"])):
        raise ModelFileError(f"{path}: parameters must be n_estimators and random_state, got {shorten(given)}")
    found: dict[str, Any] = given
    return found
