"""The fitted model: everything that decides its predictions, and all that later training needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import expit, softmax

from ..errors import DataError
from ..nn.losses import find_loss
from .calibration import UNCALIBRATED, BetaCalibration
from .inference import Scorer
from .inference.compact import CompactParams
from .names import MappedNames
from .thresholds import Thresholds
from .workers import flops, make_device, thread_count, usable_precision

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..candidates import CandidateModel
    from ..data.csr import CSR
    from ..nn.network import Network
    from .inputs import FeatureSpace
    from .targets import Form

MOST_SCORERS = 2  # scorers that are kept: one for single rows, on one thread, and one for many rows


def are_probabilities(loss: str, form: Form) -> bool:
    """Return whether scores of this loss stand for probabilities of independent labels."""
    return not find_loss(loss).normalized and form != "multiclass"


class OptimizerState(NamedTuple):
    """The name of an optimizer, its state float32 (`state_layout`) and the number of its updates."""

    name: str
    state: NDArray[np.float32]
    updates: int


@dataclass(frozen=True, eq=False)
class FittedModel:
    """The result of `fit`, `partial_fit` or `load`; neither it nor its arrays ever change.

    Attributes
    ----------
    network : shape and loss of the network.
    params : parameters, float32 (n_params,), or those of a compact model.
    names : names of the label columns; a compact model reads them when asked for.
    form : form of the training labels, in which `predict` returns labels.
    features : how X is read.
    device, precision : device that predicts, and precision of its products, "float32" or "bfloat16".
    label_counts : number of training rows of each label, int64 (L,). n_samples_seen : number of training rows.
    seed : seed of the training run. history : epoch records. n_epochs : number of epochs, with those of earlier runs.
    candidates : k-NN index, linear classifiers and stacking; None for the network alone.
    candidates_seconds : seconds of learning the candidates after the network, including models of folds.
    calibration : turns scores into the log odds that labels are true; leaves them unchanged if nothing was held out.
    thresholds : thresholds of probabilities for `predict`; None if no rows were held out.
    optimizer : optimizer state that `partial_fit` leaves for its next call; None after `fit` and in files, since after
        a full run a new optimizer learns as well (docs/decisions/training.md).
    """

    network: Network
    params: NDArray[np.float32] | CompactParams
    names: np.ndarray | MappedNames
    form: Form
    features: FeatureSpace
    device: str
    precision: str
    label_counts: NDArray[np.int64]
    n_samples_seen: int
    seed: int
    history: list[dict[str, Any]]
    n_epochs: int
    candidates: CandidateModel | None = None
    candidates_seconds: float = 0.0
    calibration: BetaCalibration = UNCALIBRATED
    thresholds: Thresholds | None = None
    optimizer: OptimizerState | None = None
    _scorers: dict[int, Scorer] = field(default_factory=dict, init=False, repr=False)  # of the last predictions

    @property
    def classes(self) -> np.ndarray:
        """The names of the label columns (L,), read-only: other parts of the model know them, too."""
        names = (self.names.array if isinstance(self.names, MappedNames) else self.names).view()
        names.flags.writeable = False
        return names

    @property
    def float_params(self) -> NDArray[np.float32]:
        """The parameters in float32; those of a compact model are converted at each call."""
        return self.params.expanded() if isinstance(self.params, CompactParams) else self.params

    def check_trainable(self, name: str) -> None:
        """Raise `DataError`, which calls the model `name`, if the model is compact."""
        if isinstance(self.params, CompactParams):
            raise DataError(f"{name}: is compact and cannot be trained further; train it again without compact")

    @property
    def trained_by_fit(self) -> bool:
        """Whether `fit` trained the model with held-out rows, not `partial_fit` alone."""
        return self.candidates is not None or self.thresholds is not None

    @property
    def loss_curve(self) -> list[float]:
        """The loss of each epoch."""
        return [record["loss"] for record in self.history]

    @property
    def has_probabilities(self) -> bool:
        """Whether a score, calibrated, gives the probability of its label, regardless of the other labels."""
        return are_probabilities(self.network.loss, self.form)

    def probability(self, scores: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the probabilities of these scores; with softmax or one class per row, scores of all labels (n, L)."""
        log_odds = self.calibration.log_odds(scores)
        # If exactly one of independent events occurs, the probability of each is in proportion to its odds.
        return np.asarray(expit(log_odds) if self.has_probabilities else softmax(log_odds, axis=1))

    def scorer(self, X: CSR, n_jobs: int | None) -> Scorer:
        """Return the scorer for rows such as X on the threads of `n_jobs`; it is kept, as are its device's buffers."""
        listed = self.candidates is not None
        n_threads = thread_count(n_jobs, flops(self.network, X, X.n_rows, listed))
        if listed and X.n_rows == 1:
            n_threads = 1  # a single row keeps no further threads busy
        scorer = self._scorers.get(n_threads)
        if scorer is None:
            device = make_device(self.device, n_threads, usable_precision(self.device, self.precision))
            scorer = self._new_scorer(device, n_threads)
            if len(self._scorers) >= MOST_SCORERS:
                self._scorers.clear()
            self._scorers[n_threads] = scorer
        return scorer

    def forget_scorers(self) -> None:
        """Free the buffers of earlier predictions."""
        self._scorers.clear()

    def _new_scorer(self, device: Any, n_threads: int) -> Scorer:
        if self.candidates is None:
            return Scorer(self.network, self.params, device)
        from ..devices.cpu import cpu_of  # here, so that an estimator can be made without loading Numba
        from .inference.candidate_scorer import CandidateScorer

        return CandidateScorer(self.network, self.params, device, self.candidates, cpu_of(device, n_threads))

    def __getstate__(self) -> dict[str, Any]:
        # Buffers and handles of a device belong to the process.
        return {**self.__dict__, "_scorers": {}}


def fitted_attribute(path: str, doc: str, *, if_none: str = "") -> Any:
    """Return a property for attribute `path` of the fitted model.

    It raises `AttributeError`, as scikit-learn requires, before `fit`, and if the attribute is None; `if_none` says
    what the model lacks then.
    """
    get = attrgetter(f"fitted_.{path}")

    def get_known(model: Any) -> Any:
        if (value := get(model)) is None:
            raise AttributeError(f"the model has no {if_none}")
        return value

    return property(get_known if if_none else get, doc=doc)


class FittedAttributes:
    """Attributes of fitted estimators, read from `fitted_`; for an ensemble this is based on its first classifier."""

    fitted_: FittedModel
    classes_ = fitted_attribute("classes", "Names of the label columns (L,).")
    n_features_in_ = fitted_attribute("features.n_features", "Number of features.")
    label_form_ = fitted_attribute("form", "Form of the training labels.")
    label_counts_ = fitted_attribute("label_counts", "int64 (L,), training rows of each label.")
    n_samples_seen_ = fitted_attribute("n_samples_seen", "Number of training rows.")
    network_ = fitted_attribute("network", "Shape and loss of the network.")
    feature_names_in_ = fitted_attribute(
        "features.names", "Names of the features, if X had any.", if_none="names of features: X had none"
    )
    vectorizer_ = fitted_attribute(
        "features.vectorizer", "The vectorizer, if X was texts.", if_none="vectorizer: X was no texts"
    )

    @property
    def thresholds_(self) -> dict[str, Any]:
        """Least probabilities of predicted labels: {"micro": float, "macro": float64 (L,)}.

        They maximize micro and macro F1 on held-out rows; 0.5 if no rows were held out.
        """
        found = self.fitted_.thresholds
        if found is None:
            return {"micro": 0.5, "macro": np.full(self.network_.n_labels, 0.5)}
        return {"micro": found.micro, "macro": found.macro.copy()}

    def __sklearn_is_fitted__(self) -> bool:
        return "fitted_" in self.__dict__
