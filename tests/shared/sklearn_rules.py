"""The rules of scikit-learn that no estimator of ours keeps, and why."""

from __future__ import annotations

# A weight scales a row's gradient; a row given twice takes part in two steps of another batch. Both minimise the same
# loss, but a path of single steps of Adam is not the same, so equal numbers cannot be had from any stochastic method.
NOT_EQUAL_STEP_BY_STEP = "a row of weight 2 is one step with twice the gradient, a row given twice is two steps"
EXPECTED_TO_FAIL = {
    "check_sample_weight_equivalence_on_dense_data": NOT_EQUAL_STEP_BY_STEP,
    "check_sample_weight_equivalence_on_sparse_data": NOT_EQUAL_STEP_BY_STEP,
}
