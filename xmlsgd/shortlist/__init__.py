"""A shortlist of labels for each row, and what is known of each label on it: neighbors, a linear path, the network."""

from .model import BOOSTED, LOGISTIC, Shortlist, fit_shortlist, held_out_rows
from .neighbors import check_sound

__all__ = ["BOOSTED", "LOGISTIC", "Shortlist", "check_sound", "fit_shortlist", "held_out_rows"]
