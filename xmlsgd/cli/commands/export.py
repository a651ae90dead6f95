"""Write a compact model of one that goes on learning: for prediction only, and a third as large.

docs/model_folder.md says how the plain arrays of a saved model make its scores, in any program.
"""

from __future__ import annotations

from ..exit_codes import UsageError
from ..flags import DIR, OVERWRITE, Flag, positional
from ..messages import Console
from ..model_folder import save_without_history
from ..models import read_predictor, remembered_options, saved_names
from ..output_files import check_folder, check_new

FLAGS = (
    positional("model", DIR, "DIR", "folder of the model"),
    Flag("compact", DIR, "folder of the compact model; required", "output"),
    OVERWRITE,
)
EXAMPLES = "  xmlsgd export model --compact small"


def run(model: str, compact: str | None, overwrite: bool, console: Console) -> None:
    """Load and write."""
    if compact is None:
        raise UsageError("the following arguments are required: --compact; see xmlsgd export --help")
    check_new(compact, "--compact", overwrite)
    check_folder(compact, model, flag="--compact")
    estimator = read_predictor(model, model, "export", {})
    save_without_history(estimator, compact, remembered_options(model), saved_names(model), compact=True)
    console.show(f"compact model: {compact}")
