"""Candidate labels of each row from a k-NN index, scored by stacking k-NN, linear classifiers and the network."""

from .knn import check_sound
from .model import HELD_OUT_BOOSTED, HELD_OUT_LOGISTIC, CandidateModel, fit_candidates, held_out_rows

__all__ = [
    "HELD_OUT_BOOSTED",
    "HELD_OUT_LOGISTIC",
    "CandidateModel",
    "check_sound",
    "fit_candidates",
    "held_out_rows",
]
