"""Measures of a ranking of labels: precision, recall, nDCG, their propensity-scored forms, F1 and coverage, all at k.

Each function compares the true labels of n rows with a prediction and returns the vector of the measure at 1..k,
float64 (k,), as fractions. `Y_true` (n, L) is a `CSR`, a scipy sparse matrix or a dense indicator; an entry other than
zero is a true label. `predicted` is one of

- a ranking: integers (n, any), best first, label -1 where there is none;
- scores: a `CSR` or scipy sparse matrix (n, L) whose stored entries are the candidates, or dense floats (n, L), where
  -inf is no candidate. Equal scores rank by the smaller label.

Notation: h_ij = 1 if the label at rank j of row i is true, n_i the number of true labels of row i, d_j = 1/log2(j+1),
q_l the inverse propensity of label l. Rows without a true label score 0 and count. All functions raise `DataError` for
k < 1, k above both L and 100, NaN scores, labels outside [-1, L), a label twice in a row's ranking, shapes that do not
fit, and no row.

Sources: K. Bhatia et al., The Extreme Classification Repository, 2016; H. Jain, Y. Prabhu, M. Varma, Extreme
Multi-label Loss Functions for Recommendation, Tagging, Ranking & Other Missing Label Applications, KDD 2016. The
normaliser of PSnDCG is that of the published evaluation code (pyxclib), not the one printed in the repository.
"""

from .measures import (
    coverage_at_k,
    evaluate_ranking,
    inverse_propensity,
    macro_f1_at_k,
    macro_precision_at_k,
    macro_recall_at_k,
    micro_f1_at_k,
    ndcg_at_k,
    precision_at_k,
    propensities,
    psndcg_at_k,
    psprecision_at_k,
    psrecall_at_k,
    recall_at_k,
)

__all__ = [
    "coverage_at_k",
    "evaluate_ranking",
    "inverse_propensity",
    "macro_f1_at_k",
    "macro_precision_at_k",
    "macro_recall_at_k",
    "micro_f1_at_k",
    "ndcg_at_k",
    "precision_at_k",
    "propensities",
    "psndcg_at_k",
    "psprecision_at_k",
    "psrecall_at_k",
    "recall_at_k",
]
