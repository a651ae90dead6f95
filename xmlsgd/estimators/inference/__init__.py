"""Scores of trained models: the best labels of rows, or all logits, by a network, a shortlist, or several of them."""

from .measure import Measure
from .scorer import Ranker, Scorer

__all__ = ["Measure", "Ranker", "Scorer"]
