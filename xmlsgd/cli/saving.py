"""The end of a run: its model is saved, whatever has ended it, and elsewhere where there is no room."""

from __future__ import annotations

import errno
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.files import CURVE, REPORT, whole_folder
from . import folder
from .failures import Halted, describe
from .model import template_of
from .outputs import check_folder, folder_above
from .results import write_json

if TYPE_CHECKING:
    from ..data.csr import Dataset
    from ..estimators import XMLClassifier, XMLEnsemble

COMPACT = 4  # parameters take a byte in place of four


def check_room(model: XMLClassifier | XMLEnsemble, n_models: int, dataset: Dataset, out: str, compact: bool) -> None:
    """Raise `OSError` where the parameters of the models that will be learned do not fit beside what is in `out`."""
    from ..nn.network import Network

    hidden = tuple(template_of(model).hidden_layer_sizes)
    floats = Network(dataset.n_features, dataset.n_labels, hidden).layout.size
    needed = n_models * 4 * floats // (COMPACT if compact else 1)
    free = shutil.disk_usage(folder_above(out)).free
    if needed > free:
        text = f"{needed / 1e6:,.1f} MB at least are needed for the model, {free / 1e6:,.1f} MB are free"
        raise OSError(errno.ENOSPC, f"{text}; nothing was trained: make room, or pass another --out or --compact", out)


def save(model: XMLClassifier | XMLEnsemble, out: str, result: dict[str, Any], title: str, compact: bool) -> None:
    """Write the folder of a model with all that tells how it came about; complete `result`."""
    with whole_folder(out) as beside:
        model.save(beside, compact=compact)
        folder.write_history(beside, model.history_)
        result["not_drawn"] = folder.draw_curve(beside, model.history_, title)
        result["learning_curve"] = None if result["not_drawn"] else f"{out}/{CURVE}"
        write_json(str(beside / REPORT), result)
        check_folder(out)  # something else may have taken the name meanwhile


def save_somewhere(
    model: XMLClassifier | XMLEnsemble, out: str, result: dict[str, Any], title: str, compact: bool
) -> None:
    """Save a model as `save` does; where that fails among the temporary files, and raise `Halted` that says so."""
    try:
        save(model, out, result, title, compact)
    except Exception as error:
        spare = Path(tempfile.mkdtemp(prefix="xmlsgd-model-"))
        try:
            save(model, str(spare / Path(out).name), result, title, compact)
        except Exception:  # noqa: BLE001  the first error counts
            shutil.rmtree(spare, ignore_errors=True)
            raise error from None
        raise Halted(f"{describe(error)[1]}; the model is in {spare / Path(out).name} instead") from error
