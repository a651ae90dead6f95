"""An ensemble as a directory: names once, and what each classifier has learned under its number."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..data.validation import is_integer, is_positive_integer
from ..errors import ModelFileError, shorten
from .classifier import XMLClassifier
from .description import ENSEMBLE, check_estimator, describe, read_facts, read_parameters, seed_to_json
from .saving import (
    arrays_of,
    is_compact,
    learned_arrays,
    predicting_on,
    read_checked,
    read_classifier,
    read_learned,
    read_shared,
    shared_arrays,
    write,
)  # fmt: skip

if TYPE_CHECKING:
    from os import PathLike

    from ..data.files.model_files import ModelFiles
    from .ensemble import XMLEnsemble

PARAMETERS = ("n_estimators", "random_state", "estimator_random_state")


def save(ensemble: XMLEnsemble, path: str | PathLike[str], compact: bool) -> None:
    """Write `ensemble`, its arrays small if `compact`."""
    arrays, members = shared_arrays(ensemble.fitted_), []
    for number, member in enumerate(ensemble.estimators_):
        described, more = learned_arrays(member.fitted_, compact)
        members.append(describe(member) | {"candidates": described})
        arrays |= {prefix_of(number) + name: array for name, array in more.items()}
    seeds = ensemble.random_state, getattr(ensemble.estimator, "random_state", None)
    parameters = dict(zip(PARAMETERS, (int(ensemble.n_estimators), *map(seed_to_json, seeds)), strict=True))
    description = {"estimator": ENSEMBLE, "xmlsgd": __version__, "parameters": parameters, "members": members}
    write(ensemble.fitted_, path, description, arrays, compact)


def load(
    kind: type[XMLEnsemble],
    path: str | PathLike[str],
    verify: bool,
    device: str | None,
    precision: str | None,
    or_classifier: bool = False,
) -> XMLClassifier | XMLEnsemble:
    """Return the ensemble at `path`, or, if allowed, a classifier to predict only; both checked part by part."""

    def read(files: ModelFiles, folder: Path) -> tuple[XMLEnsemble | None, list[XMLClassifier]]:
        if or_classifier and files.description.get("estimator") != ENSEMBLE:
            return None, [read_classifier(XMLClassifier, True, files, folder)]
        return _read_ensemble(kind, files, folder)

    ensemble, members = read_checked(path, verify, read)
    for member in members:
        member.fitted_ = predicting_on(member.fitted_, device, precision)
    if ensemble is None:
        return members[0]
    ensemble.take(members, members[0].fitted_.features)
    return ensemble


def prefix_of(number: int) -> str:
    """Return what the names of the arrays of an ensemble's classifier begin with, which has a number from 0."""
    return f"member{number}_"


def _read_ensemble(kind: type[XMLEnsemble], files: ModelFiles, path: Path) -> tuple[XMLEnsemble, list[XMLClassifier]]:
    """Return the ensemble of which these are the files, and its classifiers."""
    check_estimator(files.description, ENSEMBLE, path)
    described = files.description.get("members")
    if not isinstance(described, list) or not described or not all(isinstance(each, dict) for each in described):
        raise ModelFileError(f"{path}: members must be a list of descriptions, got {shorten(described)}")
    members = [read_parameters(XMLClassifier, each, path) for each in described]
    facts = [read_facts(each, path) for each in described]
    networks = [each["network"] for each in facts]
    kinds = [(n.n_features, n.n_labels, n.loss, each["form"]) for n, each in zip(networks, facts, strict=True)]
    for other in kinds[1:]:
        if other != kinds[0]:
            raise ModelFileError(
                f"{path}: members must agree in features, labels, loss and form, got {kinds[0]} and {other}"
            )
    given = _parameters(files.description.get("parameters"), path)
    saved, compact = arrays_of(files, path), is_compact(files)
    shared = read_shared(files, saved, networks[0])
    for number, member in enumerate(members):
        arrays = saved.part(prefix_of(number))
        member.fitted_ = read_learned(facts[number] | shared, arrays, described[number].get("candidates"), compact)
    template = XMLClassifier(**{**members[0].get_params(deep=False), "random_state": given["estimator_random_state"]})
    return kind(template, given["n_estimators"], random_state=given["random_state"]), members


def _parameters(given: Any, path: Path) -> dict[str, Any]:
    """Return the parameters of the ensemble itself."""
    fits = isinstance(given, dict) and set(given) == set(PARAMETERS) and is_positive_integer(given["n_estimators"])
    if not fits or not all(given[name] is None or is_integer(given[name]) for name in PARAMETERS[1:]):
        raise ModelFileError(f"{path}: parameters must be {', '.join(PARAMETERS)}, got {shorten(given)}")
    found: dict[str, Any] = given
    return found
