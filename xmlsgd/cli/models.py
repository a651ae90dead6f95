"""The model of a command: read from its folder, and what a classifier and an ensemble have in common."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..data.files.manifest import MODEL, REPORT, VOCABULARY
from ..errors import nor_others, shorten, warn
from .exit_codes import UsageError

if TYPE_CHECKING:
    import numpy as np

    from ..data.csr import Dataset
    from ..estimators import XMLClassifier, XMLEnsemble
    from .format_options import FormatOptions

READ_BY = "read_by"  # in the report: the options of reading that later commands take from it


def read_predictor(folder: str, data: str, command: str, parameters: dict[str, Any]) -> XMLClassifier | XMLEnsemble:
    """Return the model in a folder with `parameters` set; `data` is the argument that follows it in the command."""
    if not MODEL.exists_at(Path(folder)):
        if MODEL.exists_at(Path(data)):
            right = f"xmlsgd {command} {data} {folder}"
            raise UsageError(f"{folder}: is not a saved model, but {data} is; the model comes first: {right}")
        from ..data.files.folders import read_folder

        read_folder(folder)  # says what is wrong before seconds are spent on imports
    from ..estimators import load_model

    given = {"n_jobs": None, **parameters}
    model = load_model(folder, precision=given.pop("precision", None))
    template_of(model).set_params(**given)
    return model


def read_learner(folder: str, parameters: dict[str, Any]) -> XMLClassifier:
    """Return the classifier in a folder with `parameters` set; an error where it cannot learn on."""
    from ..estimators import XMLClassifier

    given = dict(parameters)
    model = XMLClassifier.load(folder, precision=given.pop("precision", None)).set_params(**given)
    model.fitted_.check_learns_on(folder)
    return model


def saved_names(folder: str) -> dict[str, str] | None:
    """Return the names of the subjects of `train --vocabulary`, by URI; None where there was none."""
    from ..data.vocabulary import read_vocabulary

    path = Path(folder, VOCABULARY)
    return read_vocabulary(path) if path.is_file() else None


def save_names(folder: Path, names_of_uris: Mapping[str, str] | None) -> None:
    """Write what `saved_names` returns into a folder; nothing for None."""
    from ..data.vocabulary import write_vocabulary

    if names_of_uris is not None:
        write_vocabulary(names_of_uris, folder / VOCABULARY)


def options_of_model(options: FormatOptions, folder: str, model: XMLClassifier | XMLEnsemble) -> FormatOptions:
    """Return options that read data as training data was read, and URIs as the labels that the model knows them as."""
    from ..data.vocabulary import uris_among

    names = saved_names(folder)
    if names is None and options.vocabulary is not None:  # it may have learned the URIs themselves
        names = uris_among([str(name) for name in model.classes_.tolist()])
    return replace(options.with_remembered(remembered_options(folder) or {}), names=names)


def remembered_options(folder: str) -> dict[str, Any] | None:
    """Return the options by which training data was read, None where no report in a model's folder has them."""
    with suppress(OSError, ValueError, RecursionError, LookupError, TypeError):
        return dict(report_in(folder)[READ_BY])
    return None


def report_in(folder: str) -> Any:
    """Return the report in a model's folder."""
    return json.loads(Path(folder, REPORT).read_text(encoding="utf-8"))


def label_weight_of(
    model: XMLClassifier | XMLEnsemble, power: float, A: float = 0.55, B: float = 1.5
) -> np.ndarray | None:
    """Return each label's weight in rankings, a power of its inverse propensity; None for power 0."""
    if not power:
        return None
    weight: np.ndarray = model.inverse_propensity(A, B) ** power
    if not math.isfinite(weight.max()):
        raise UsageError(f"--propensity-power: makes weights that are not finite, got {power:g}; pass 1 or less")
    return weight


def read_excluded(
    path: str | None, model: XMLClassifier | XMLEnsemble, names_of: Mapping[str, str]
) -> np.ndarray | None:
    """Return the columns of the labels whose names, or URIs, a file has, one per line; None without a file.

    Names that the model does not have are warned of: they may be wrongly written.
    """
    if path is None:
        return None
    import numpy as np

    from ..data.text import composed, lines_of_file
    from ..data.vocabulary import name_of

    columns = {str(name): column for column, name in enumerate(model.classes_.tolist())}
    # Names learned in Python may not be composed.
    columns = {composed(name): column for name, column in columns.items()} | columns
    lines = (composed(line.strip()) for line in lines_of_file(path))
    names = [name if name in columns else name_of(name, names_of) for name in lines]
    unknown = [(number, name) for number, name in enumerate(names, 1) if name and name not in columns]
    if unknown:
        number, name = unknown[0]
        text = f"{path}:{number}: the model has no label {shorten(name)}"
        warn(f"{text}{nor_others(len(unknown) - 1)}; unknown labels exclude nothing")
    return np.array([columns[name] for name in names if name in columns], dtype=np.int64)


def groups_in_training(given: str | None, n_rows: int) -> list[str] | str | None:
    """Return the groups in a file, or "similar" as it is, which `fit` understands; a file of this name is ./similar."""
    return given if given == "similar" else groups_in_file(given, n_rows)


def groups_in_file(path: str | None, n_rows: int) -> list[str] | None:
    """Return the group of each row: line i of a file is that of row i; None without a file."""
    if path is None:
        return None
    from ..data.text import lines_of_file

    groups = [line.strip() for line in lines_of_file(path)]
    if len(groups) != n_rows:
        raise UsageError(f"--groups {path}: must have a line for each of {n_rows:,} rows, got {len(groups):,}")
    return groups


def names_in(rows: Dataset, model: XMLClassifier | XMLEnsemble) -> Sequence[Any]:
    """Return the names of the labels of rows; where they have none those of the model, and behind it numbers."""
    known = model.classes_.tolist()
    return rows.label_names or [*known, *range(len(known), rows.n_labels)]


def classifiers_of(model: XMLClassifier | XMLEnsemble) -> list[XMLClassifier]:
    """Return the classifiers of an ensemble, or the single classifier."""
    return getattr(model, "estimators_", [model])


def template_of(model: XMLClassifier | XMLEnsemble) -> XMLClassifier:
    """Return the classifier that has the parameters of the flags: of an ensemble the one that it clones."""
    return cast("XMLClassifier", getattr(model, "estimator", model))


def parameters_of(model: XMLClassifier | XMLEnsemble) -> dict[str, Any]:
    """Return the parameters of a model, in JSON's place those of the ensemble, too."""
    parameters: dict[str, Any] = template_of(model).get_params(deep=False)
    if template_of(model) is not model:
        parameters |= {name: getattr(model, name) for name in ("n_estimators", "random_state")}
    return parameters
