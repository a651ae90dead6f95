"""Candidate labels of each row from a k-NN index, scored by stacking k-NN, linear classifiers and the network."""

from .knn import check_sound as check_sound
from .model import HELD_OUT_BOOSTED as HELD_OUT_BOOSTED
from .model import HELD_OUT_LOGISTIC as HELD_OUT_LOGISTIC
from .model import HELD_OUT_NETWORK as HELD_OUT_NETWORK
from .model import HELD_OUT_NONE as HELD_OUT_NONE
from .model import CandidateModel as CandidateModel
from .model import HeldOutScores as HeldOutScores
from .model import fit_candidates as fit_candidates
from .model import held_out_rows as held_out_rows
