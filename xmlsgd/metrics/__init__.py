"""Metrics of a ranking of labels at k, of predicted sets, and of probabilities.

Metrics at k are precision, recall, nDCG, their propensity-scored forms, F1 and coverage. Each function `..._at_k`
compares the true labels of n rows with a prediction, and returns the metric at 1, 2, ..., k as fractions, float64 (k,).

- `Y_true` (n, L) is a `CSR`, a scipy sparse matrix or a dense indicator matrix; a nonzero entry is a true label.
- `predicted` is a ranking, integers (n, any), best first, padded with label -1; or scores (n, L), a `CSR`, a scipy
  sparse matrix whose stored entries are the candidates, or dense floats, where -inf stands for no candidate. Of equal
  scores, the smaller label ranks first.

Notation: h_ij = 1 if the label at rank j of row i is true, n_i the number of true labels of row i, d_j = 1/log2(j+1),
q_l the inverse propensity of label l. Rows without true labels score 0 and count. All functions raise `DataError` for
k < 1, k above both L and 100, NaN scores, labels outside [-1, L), a label twice in a row's ranking, shapes that do not
fit, and no rows.

Other functions compare predicted sets (`label_scores`), groups of rows (`precision_by_group`) and probabilities
(`reliability`, `expected_calibration_error`). `drop_pairs` leaves pairs of a row and a label out of a ranking.

References
----------
K. Bhatia et al., The Extreme Classification Repository, 2016.

H. Jain, Y. Prabhu, M. Varma, Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking & Other Missing
Label Applications, KDD 2016. PSnDCG is normalized as in the published evaluation code (pyxclib), not as printed in the
repository.
"""

from .calibration import Reliability as Reliability
from .calibration import expected_calibration_error as expected_calibration_error
from .calibration import reliability as reliability
from .evaluation import evaluate_ranking as evaluate_ranking
from .evaluation import metric as metric
from .filtering import drop_pairs as drop_pairs
from .per_label import LabelScores as LabelScores
from .per_label import coverage_at_k as coverage_at_k
from .per_label import label_scores as label_scores
from .per_label import macro_f1_at_k as macro_f1_at_k
from .per_label import macro_precision_at_k as macro_precision_at_k
from .per_label import macro_recall_at_k as macro_recall_at_k
from .per_label import micro_f1_at_k as micro_f1_at_k
from .propensity import inverse_propensity as inverse_propensity
from .propensity import psndcg_at_k as psndcg_at_k
from .propensity import psprecision_at_k as psprecision_at_k
from .propensity import psrecall_at_k as psrecall_at_k
from .ranking import GroupedPrecision as GroupedPrecision
from .ranking import ndcg_at_k as ndcg_at_k
from .ranking import precision_at_k as precision_at_k
from .ranking import precision_by_group as precision_by_group
from .ranking import recall_at_k as recall_at_k
