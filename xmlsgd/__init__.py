"""Sparse neural networks for extreme multi-label classification, trained by stochastic gradient descent.

Public names are imported from their modules when first used, so that `import xmlsgd` neither loads Numba nor
compiles a kernel (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .data.csr import CSR as CSR
    from .data.csr import Dataset as Dataset
    from .data.datasets import load_dataset as load_dataset
    from .data.loading import load_file as load_file
    from .data.public import load_public as load_public
    from .data.synthetic import make_xmc as make_xmc
    from .data.vectorizer import TextVectorizer as TextVectorizer
    from .errors import DataError as DataError
    from .errors import DivergenceError as DivergenceError
    from .errors import MemoryEstimateError as MemoryEstimateError
    from .errors import ModelFileError as ModelFileError
    from .errors import WorkerDied as WorkerDied
    from .estimators import XMLClassifier as XMLClassifier
    from .estimators import XMLEnsemble as XMLEnsemble
    from .estimators import load_model as load_model
    from .estimators.inference import Measure as Measure
    from .estimators.inference import Scorer as Scorer
    from .estimators.inference.explanation import Explanation as Explanation
    from .estimators.tuning import Trial as Trial
    from .estimators.tuning import Tuning as Tuning
    from .estimators.tuning import tune as tune
    from .metrics import coverage_at_k as coverage_at_k
    from .metrics import evaluate_ranking as evaluate_ranking
    from .metrics import inverse_propensity as inverse_propensity
    from .metrics import macro_f1_at_k as macro_f1_at_k
    from .metrics import macro_precision_at_k as macro_precision_at_k
    from .metrics import macro_recall_at_k as macro_recall_at_k
    from .metrics import micro_f1_at_k as micro_f1_at_k
    from .metrics import ndcg_at_k as ndcg_at_k
    from .metrics import precision_at_k as precision_at_k
    from .metrics import psndcg_at_k as psndcg_at_k
    from .metrics import psprecision_at_k as psprecision_at_k
    from .metrics import psrecall_at_k as psrecall_at_k
    from .metrics import recall_at_k as recall_at_k
    from .nn.schedules import Schedule as Schedule
    from .training.checkpoints import Checkpoint as Checkpoint
    from .training.learner import Job as Job
    from .training.loop import train as train
    from .training.runs import Run as Run

__version__ = "0.2.0"

_NAMES_OF_MODULE = {
    "training.checkpoints": ("Checkpoint",),
    "data.csr": ("CSR", "Dataset"),
    "data.datasets": ("load_dataset",),
    "data.loading": ("load_file",),
    "data.public": ("load_public",),
    "data.synthetic": ("make_xmc",),
    "data.vectorizer": ("TextVectorizer",),
    "training.loop": ("train",),
    "errors": ("DataError", "DivergenceError", "MemoryEstimateError", "ModelFileError", "WorkerDied"),
    "estimators": ("XMLClassifier", "XMLEnsemble", "load_model"),
    "training.learner": ("Job",),
    "metrics": (
        "coverage_at_k", "evaluate_ranking", "inverse_propensity", "macro_f1_at_k", "macro_precision_at_k",
        "macro_recall_at_k", "micro_f1_at_k", "ndcg_at_k", "precision_at_k", "psndcg_at_k", "psprecision_at_k",
        "psrecall_at_k", "recall_at_k",
    ),
    "training.runs": ("Run",),
    "nn.schedules": ("Schedule",),
    "estimators.inference": ("Measure", "Scorer"),
    "estimators.tuning": ("Trial", "Tuning", "tune"),
    "estimators.inference.explanation": ("Explanation",),
}  # fmt: skip

_MODULE_OF_NAME = {name: module for module, names in _NAMES_OF_MODULE.items() for name in names}

__all__ = [*_MODULE_OF_NAME, "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name from its module; later accesses do not come here."""
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_MODULE_OF_NAME[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    """Return the public names, imported or not, beside what the package holds."""
    return sorted({*globals(), *_MODULE_OF_NAME})
