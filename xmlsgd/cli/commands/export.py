"""Write a model in another form: compact, its network as ONNX, all its arrays as safetensors.

A compact model is for prediction only, and a third as large. ONNX holds the network alone; the scores of a model with
candidates are made of more. safetensors holds everything but the words of a vectorizer; docs/model_folder.md names the
arrays and says how they make scores.

--onnx and --safetensors need more: pip install "xmlsgd[onnx,safetensors]".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..exit_codes import UsageError
from ..flags import DIR, FILE, OVERWRITE, Flag, positional
from ..messages import Console
from ..model_folder import save_without_history
from ..models import read_predictor, remembered_options, saved_names
from ..output_files import check_folder, check_new

FLAGS = (
    positional("model", DIR, "DIR", "folder of the model"),
    Flag("compact", DIR, "write a compact model, also of one that has learned on", "output"),
    Flag("onnx", FILE, "write the network of a classifier as ONNX", "output"),
    Flag("safetensors", FILE, "write all arrays of the model as safetensors", "output"),
    OVERWRITE,
)
EXAMPLES = """  xmlsgd export model --compact small
  xmlsgd export model --onnx model.onnx --safetensors model.safetensors"""


def run(
    model: str, compact: str | None, onnx: str | None, safetensors: str | None, overwrite: bool, console: Console
) -> None:
    """Load and write."""
    files = {"--compact": compact, "--onnx": onnx, "--safetensors": safetensors}
    if not any(files.values()):
        raise UsageError("must have --compact DIR, --onnx FILE or --safetensors FILE, got none")
    if onnx is not None and safetensors is not None and Path(onnx).resolve() == Path(safetensors).resolve():
        raise UsageError(f"--onnx and --safetensors: must be two files, got {onnx} for both")
    for flag, path in files.items():
        if path is not None:
            check_new(path, flag, overwrite)
    if compact is not None:
        check_folder(compact, model, flag="--compact")
    estimator: Any = read_predictor(model, model, "export", {})
    from ...estimators.export import export_onnx, export_safetensors

    if compact is not None:
        save_without_history(estimator, compact, remembered_options(model), saved_names(model), compact=True)
        console.show(f"compact model: {compact}")
    for write, path in ((export_onnx, onnx), (export_safetensors, safetensors)):
        if path is not None:
            write(estimator, path)
            console.show(f"{path}: {Path(path).stat().st_size / 1e6:,.1f} MB")
