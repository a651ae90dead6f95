"""Score labels with trained models: the best labels of rows, or all scores; of one model or the mean of several."""

from .scorer import Measure, Ranker, Scorer

__all__ = ["Measure", "Ranker", "Scorer"]
