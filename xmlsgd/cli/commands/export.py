"""Write a model in another form: compact, or its network as ONNX.

A compact model can only predict, and is about half as large. An ONNX file holds the network alone, which does not
suffice for the scores of a model with candidates. docs/model_folder.md describes how any program can compute these from
the plain arrays of a saved model.

--onnx needs more packages: pip install "xmlsgd[onnx]".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..exit_codes import UsageError
from ..flags import DIR, FILE, OVERWRITE, Flag, positional
from ..messages import Console
from ..model_folder import save_without_history
from ..models import read_predictor
from ..output_files import check_folder, check_new

FLAGS = (
    positional("model", DIR, "DIR", "folder of the model"),
    Flag("compact", DIR, "write a compact copy of the model", "output"),
    Flag("onnx", FILE, "write the network of a classifier as ONNX", "output"),
    OVERWRITE,
)
EXAMPLES = """  xmlsgd export model --compact small
  xmlsgd export model --onnx model.onnx"""


def run(model: str, compact: str | None, onnx: str | None, overwrite: bool, console: Console) -> None:
    """Load the model and write it in the wanted forms."""
    if compact is None and onnx is None:
        raise UsageError("must have --compact DIR or --onnx FILE, got neither")
    if compact is not None:
        check_folder(compact, model, flag="--compact", overwrite=overwrite)
    if onnx is not None:
        check_new(onnx, "--onnx", overwrite)
    estimator: Any = read_predictor(model, {})
    if compact is not None:
        save_without_history(estimator, compact, model, compact=True)
        console.show(f"compact model: {compact}")
    if onnx is not None:
        from ...estimators.export import export_onnx

        export_onnx(estimator, onnx)
        console.show(f"{onnx}: {Path(onnx).stat().st_size / 1e6:,.1f} MB")
