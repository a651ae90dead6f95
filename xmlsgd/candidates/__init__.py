"""A shortlist of labels for each row, and what is known of each label on it: neighbors, a linear path, the network."""

from .knn import check_sound
from .model import BOOSTED, LOGISTIC, Shortlist, fit_shortlist, held_out_rows

__all__ = ["BOOSTED", "LOGISTIC", "Shortlist", "check_sound", "fit_shortlist", "held_out_rows"]
