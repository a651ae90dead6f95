"""Estimators with scikit-learn's rules."""

from .classifier import XMLClassifier

__all__ = ["XMLClassifier"]
