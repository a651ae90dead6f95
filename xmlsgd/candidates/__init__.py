"""Candidate labels from a k-NN index and co-occurrence, scored by stacking k-NN, linear classifiers and the network."""

from .knn import check_sound as check_sound
from .model import CandidateModel as CandidateModel
from .stacking_training import HeldOutPairs as HeldOutPairs
from .stacking_training import HeldOutScores as HeldOutScores
