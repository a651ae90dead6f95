"""Read the model of a command from its folder, and treat classifiers and ensembles alike."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..data.files.manifest import MODEL, REPORT, VOCABULARY
from ..errors import nor_others, shorten, warn
from .exit_codes import UsageError

if TYPE_CHECKING:
    import numpy as np

    from ..data.csr import Dataset
    from ..estimators import Model, XMLClassifier
    from .format_options import FormatOptions
    from .results import UriOf

READ_BY = "read_by"  # key of the report: options of reading data, which later commands use again


def check_model(folder: str, data: str, command: str) -> None:
    """Raise an error if a folder holds no model; data : the next argument of the command, which may be the model."""
    if not MODEL.exists_at(Path(folder)):
        if MODEL.exists_at(Path(data)):
            right = f"xmlsgd {command} {data} {folder}"
            raise UsageError(f"{folder}: is not a saved model, but {data} is; the model comes first: {right}")
        from ..data.files.folders import read_folder

        read_folder(folder)


def read_predictor(folder: str, data: str, command: str, parameters: dict[str, Any]) -> Model:
    """Return the model in a folder, with `parameters` set; data : as in `check_model`."""
    check_model(folder, data, command)  # at once; with the imports below it would take seconds
    from ..estimators import load_model

    given = {"n_jobs": None, **parameters}
    model = load_model(folder, precision=given.pop("precision", None))
    template_of(model).set_params(**given)
    return model


def read_learner(folder: str, parameters: dict[str, Any]) -> XMLClassifier:
    """Return the classifier in a folder, with `parameters` set; raise an error if it cannot learn more rows."""
    from ..estimators import XMLClassifier

    given = dict(parameters)
    model = XMLClassifier.load(folder, precision=given.pop("precision", None)).set_params(**given)
    model.fitted_.check_trainable(folder)
    return model


def saved_names(folder: str) -> dict[str, str] | None:
    """Return the names of the vocabulary that `train --vocabulary` saved, by URI; None if there was none."""
    from ..data.vocabulary import read_vocabulary

    path = Path(folder, VOCABULARY)
    return read_vocabulary(path) if path.is_file() else None


def finder_of_uris(names_of_uris: Mapping[str, str] | None) -> UriOf | None:
    """Return the function that finds the URI of a name by a vocabulary; None without a vocabulary."""
    from ..data.vocabulary import uri_of

    uris = {name: uri for uri, name in (names_of_uris or {}).items()}
    return partial(uri_of, uris=uris) if uris else None


def save_names(folder: Path, names_of_uris: Mapping[str, str] | None) -> None:
    """Write names of a vocabulary into a folder, for `saved_names`; nothing for None."""
    from ..data.vocabulary import write_vocabulary

    if names_of_uris is not None:
        write_vocabulary(names_of_uris, folder / VOCABULARY)


def options_of_model(options: FormatOptions, folder: str, model: Model) -> FormatOptions:
    """Return options that read data as the training data was read, with names of URIs as the model knows them."""
    from ..data.vocabulary import uris_among

    names = saved_names(folder)
    if names is None and options.vocabulary is not None:  # the names of its labels may be URIs
        names = uris_among([str(name) for name in model.classes_.tolist()])
    return replace(options.with_remembered(remembered_options(folder) or {}), names=names)


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


def remembered_options(folder: str) -> dict[str, Any] | None:
    """Return the options by which the training data was read; None if the model's folder has no report with them."""
    with suppress(OSError, ValueError, RecursionError, LookupError, TypeError):
        return dict(report_in(folder)[READ_BY])
    return None


def report_in(folder: str) -> Any:
    """Return the report in a model's folder."""
    return json.loads(Path(folder, REPORT).read_text(encoding="utf-8"))


def label_weight_of(model: Model, power: float, A: float = 0.55, B: float = 1.5) -> np.ndarray | None:
    """Return each label's weight in rankings, a power of its inverse propensity; None for power 0."""
    if not power:
        return None
    weight: np.ndarray = model.inverse_propensity(A, B) ** power
    if not math.isfinite(weight.max()):
        raise UsageError(f"--propensity-power: makes weights that are not finite, got {power:g}; pass 1 or less")
    return weight


def read_excluded(path: str | None, model: Model, names_of: Mapping[str, str]) -> np.ndarray | None:
    """Return the columns of the labels that a file lists by name or URI, one per line; None without a file.

    What follows a tab is ignored, so that lines of a vocabulary may be listed. Warns of names that the model does not
    have: they may be misspelled.
    """
    if path is None:
        return None
    import numpy as np

    from ..data.text import composed, label_name, lines_of_file
    from ..data.vocabulary import name_of

    columns = {str(name): column for column, name in enumerate(model.classes_.tolist())}
    # Names that were learned in Python may not be in the composed form (NFC), in which lines are compared.
    columns = {composed(name): column for name, column in columns.items()} | columns
    lines = (label_name(line.partition("\t")[0]) for line in lines_of_file(path))
    names = [name if name in columns else name_of(name, names_of) for name in lines]
    unknown = [(number, name) for number, name in enumerate(names, 1) if name and name not in columns]
    if unknown:
        number, name = unknown[0]
        text = f"{path}:{number}: the model has no label {shorten(name)}"
        warn(f"{text}{nor_others(len(unknown) - 1)}; unknown labels exclude nothing")
    return np.array([columns[name] for name in names if name in columns], dtype=np.int64)


def groups_in_training(given: str | None, n_rows: int) -> list[str] | str | None:
    """Return the groups in a file, or "similar" unchanged, as `fit` takes it; a file of this name is ./similar."""
    return given if given == "similar" else groups_in_file(given, n_rows)


def groups_in_file(path: str | None, n_rows: int) -> list[str] | None:
    """Return the group of each row, line i of a file for row i; None without a file."""
    if path is None:
        return None
    from ..data.text import lines_of_file

    groups = [line.strip() for line in lines_of_file(path)]
    if len(groups) != n_rows:
        raise UsageError(f"--groups {path}: must have a line for each of {n_rows:,} rows, got {len(groups):,} lines")
    return groups


def names_in(rows: Dataset, model: Model) -> Sequence[Any]:
    """Return the names of the labels of rows; if they have none, names of the model, and numbers for other labels."""
    known = model.classes_.tolist()
    return rows.label_names or [*known, *range(len(known), rows.n_labels)]


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
