"""The saved model that a verb reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..files import is_model
from .failures import UsageError
from .parameters import given_parameters

if TYPE_CHECKING:
    from argparse import Namespace

    from ..estimators import XMLClassifier


def load_model(args: Namespace, data: str) -> XMLClassifier:
    """Return the model in the folder `args.model`, with the parameters of the flags; `data` is named behind it."""
    if not is_model(Path(args.model)):
        if is_model(Path(data)):
            right = f"xmlsgd {args.verb} {data} {args.model}"
            raise UsageError(f"{args.model}: is not a saved model, but {data} is; the model comes first: {right}")
        from ..model_files import read_model

        read_model(args.model)  # which says what is wrong, before a second is spent on imports
    from ..estimators import XMLClassifier

    return XMLClassifier.load(args.model).set_params(**{"n_jobs": None, **given_parameters(args)})
