"""Write a model for other programs: its network as ONNX, all its arrays as safetensors.

ONNX holds the network alone; the scores of a model with candidates are made of more. safetensors holds everything but
the words of a vectorizer; docs/model_folder.md names the arrays and says how they make scores.

Needs onnx or safetensors: pip install "xmlsgd[onnx,safetensors]".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..exit_codes import UsageError
from ..flags import DIR, FILE, OVERWRITE, Flag, positional
from ..messages import Console
from ..models import read_predictor
from ..output_files import check_new

FLAGS = (
    positional("model", DIR, "DIR", "folder of the model"),
    Flag("onnx", FILE, "write the network of a classifier as ONNX", "output"),
    Flag("safetensors", FILE, "write all arrays of the model as safetensors", "output"),
    OVERWRITE,
)
EXAMPLES = "  xmlsgd export model --onnx model.onnx --safetensors model.safetensors"


def run(model: str, onnx: str | None, safetensors: str | None, overwrite: bool, console: Console) -> None:
    """Load and write."""
    files = {"--onnx": onnx, "--safetensors": safetensors}
    if not any(files.values()):
        raise UsageError("must have --onnx FILE, --safetensors FILE or both, got neither")
    if onnx is not None and safetensors is not None and Path(onnx).resolve() == Path(safetensors).resolve():
        raise UsageError(f"--onnx and --safetensors: must be two files, got {onnx} for both")
    for flag, path in files.items():
        if path is not None:
            check_new(path, flag, overwrite)
    estimator: Any = read_predictor(model, model, "export", {})
    from ...estimators.export import export_onnx, export_safetensors

    for write, path in ((export_onnx, onnx), (export_safetensors, safetensors)):
        if path is not None:
            write(estimator, path)
            console.show(f"{path}: {Path(path).stat().st_size / 1e6:,.1f} MB")
