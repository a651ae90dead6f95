"""Candidate labels from a k-NN index and co-occurrence, scored by stacking k-NN, linear classifiers and the network."""

from .held_out_pairs import HeldOutPairs as HeldOutPairs
from .held_out_pairs import HeldOutScores as HeldOutScores
from .knn import check_sound as check_sound
from .model import CandidateModel as CandidateModel
