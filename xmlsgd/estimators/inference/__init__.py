"""Scores of trained models: the best labels of rows, or all logits, of a network, with candidates, or of several."""

from .scorer import Measure, Ranker, Scorer

__all__ = ["Measure", "Ranker", "Scorer"]
