"""Estimators with scikit-learn's rules."""

from .classifier import XMLClassifier
from .ensemble import Model as Model
from .ensemble import XMLEnsemble, load_model

__all__ = ["XMLClassifier", "XMLEnsemble", "load_model"]
