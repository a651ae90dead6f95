"""Scores of trained models: the best labels of rows, or all logits, of a network, with candidates, or of several."""

from .explanation import Explanation
from .measure import Measure
from .scorer import Ranker, Scorer

__all__ = ["Explanation", "Measure", "Ranker", "Scorer"]
