"""The classifier for multi-label and multi-class data: a scikit-learn estimator that plans, fits and predicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from os import PathLike
from typing import Any, Literal

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from ..data.vectorizer import TextVectorizer
from ..nn.optimizers import Optimizer
from ..training.callbacks import Callback
from ..training.checkpoints import Checkpoint
from . import memory, saving
from .fitted import FittedModel, fitted_attribute
from .fitting import Fitting, as_checkpoint, check_callbacks, draw_seed
from .names import names_of_columns
from .parameters import check_parameters
from .plan import TrainingPlan
from .planning import make_plan
from .predicting import Predictor
from .targets import check_declared, with_declared, with_further_columns
from .training_data import GivenRows, TrainingData, read_training_data, with_validation_share


@dataclass(eq=False, repr=False)
class XMLClassifier(Predictor, BaseEstimator):
    """Neighbors, linear classifiers and a small neural network, stacked, for up to millions of labels.

    X is dense, a scipy sparse matrix, a `CSR` (memory maps are read in place) or texts. Labels are

    - an indicator matrix (n, L), scipy sparse, `CSR` or dense; `predict` returns a scipy CSR array, or a dense one if Y
      was dense;
    - a list of label lists with names int or str; `predict` returns a scipy CSR array with columns as in `classes_`;
    - one class per row (1-D); `predict` returns classes.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int or "auto"
        Units of each hidden layer, at least one layer; "auto" for (256,), or (64,) with candidates, more than 1,000
        features and labels together, and at most 10,000 rows or four labels a row.
    loss : {"auto", "bce", "softmax"}
        "bce" for independent labels, "softmax" if the labels of a row share a probability of 1; "auto" for "softmax"
        with one class per row and no candidates, else "bce".
    optimizer : {"auto", "adam", "row_rmsprop", "rmsprop", "adagrad", "momentum", "sgd"} or Optimizer
        A name, or an object with settings of its own; "auto" for "row_rmsprop" with candidates and more than 1,000
        features and labels together, else "adam". Row-wise RMSprop keeps one number per row of weights, Adam two per
        weight.
    learning_rate_init : float or "auto"
        The peak learning rate; "auto" for one that suits the optimizer (Adam: 6e-3; row_rmsprop with candidates: 2e-2).
    learning_rate : {"linear", "cosine", "constant", "inverse_sqrt"}
        Schedule of the learning rate: how it falls over the run. "cosine" with `warm_up=0.3` is a one-cycle schedule.
    warm_up : float
        Share of the run, in [0, 1), over which the learning rate first rises from zero to its peak.
    batch_size : int or "auto"
        Rows per step; "auto" for 256, or down to 32 so that an epoch has 64 steps, or 12 with candidates.
    negatives : int, "all" or "auto"
        Number of labels that a batch trains besides the true labels of its rows. With 16,000 labels, 1,024 negatives
        make an epoch several times as fast at nearly the same P@k. "auto" for 1,024 if `sampler` is given by name, else
        256 with candidates and all without; with `sampler="all"`, all.
    sampler : {"auto", "all", "uniform"}
        How negatives are drawn; "auto" for "uniform". A `Sampler` object goes to `Job(sampler=...)`, see `train`.
    gradient_rounding : float or "auto"
        Threshold in [0, 1) for stochastic gradient sparsification: smaller gradients of labels that a row lacks become
        the threshold or 0 at random, which keeps their mean. The threshold is multiplied by the weight of the row.
        Training all labels is then twice as fast, at the same accuracy. "auto" for 0.1 with "bce", Adam or RMSprop
        without clipping, 1,000 labels or more and no GPU; else 0, for exact gradients.
    candidates : int or "auto"
        Candidate labels per training row that its nearest rows propose; co-occurrence adds 16. For a new row, neighbors
        propose half of `candidates`, or min(`candidates`, 64) if that is more, and co-occurrence 64. Linear classifiers
        and the network score them, and stacking combines all (docs/candidates.md). 0 for the network alone. "auto" for
        64, or all labels if there are fewer; where rows have many of them, for 8 times their mean number, but at most
        256 and a sixteenth of all labels. It is 0 with fewer than 100 rows, with a loss other than "bce", or if more
        than three quarters of the squared values of X lie in frequent features (nonzero in half of the rows) and there
        are no landmarks (fewer than 32 of these have values below 0), or each row has one class.
    max_epochs : int or "auto"
        Passes over the rows; "auto" for 4 with candidates and more than 1,000 features and labels together, or up to 12
        for few long rows with many labels; else 10, or more (up to 200) if these would be fewer than 600 steps.
    weight_decay, clip_norm : float
        See `Optimizer`; only for an optimizer given by name.
    hidden_dropout : float
        Share of hidden units, in [0, 1), that are dropped in training.
    early_stopping : bool
        Stop when P@1 on `eval_set`, or on a `validation_fraction` of the rows, has not risen by more than `tol` (a
        fraction) for `n_epochs_no_change` epochs, and keep the best model. `partial_fit` ignores it.
    validation_fraction, tol : float
        See `early_stopping`.
    n_epochs_no_change : int
        See `early_stopping`.
    class_weight : dict, "balanced" or None
        For one class per row: {class: weight}; classes that are not listed have weight 1. Rows of weight 0 are not
        learned.
    algorithm : str or Algorithm
        How several workers train together: a name, with or without options (docs/algorithms.md), or an object with a
        batch size and learning rate of its own; "auto" for one that suits the workers.
    vectorizer : TextVectorizer or None
        Turns texts into rows. `fit` copies it to `vectorizer_` and, if it is not fitted, fits the copy to the texts;
        `partial_fit` adds words to the copy. None for a vectorizer of words, of words and pairs of words, or of
        n-grams of characters, whichever is best on held-out texts.
    devices : str
        The workers: "cpu", or several as in "cpu*2" and "cuda:0,cpu". Each is a process; they are threads only if all
        are on GPUs and some share one.
    precision : {"auto", "float32", "bfloat16"}
        Precision of the matrix products; "auto" for the faster one on this processor.
    n_jobs : int or None
        Threads that the workers on the CPU share, each of which has at least one; -1 for all cores; None for as many as
        the work keeps busy, which is all cores where candidates are learned. With 1, a seed gives the same bits, unless
        `algorithm` is one for several workers. If a single worker trains the network, candidates are learned at the
        same time: on a CPU, the network uses at most half of the threads until one side is done.
    warm_start : bool
        Whether `fit` continues from the last fit: it trains more epochs on the same rows, and on further rows if there
        are any. Fewer rows are refused (`partial_fit` learns new ones). Pass earlier rows first and in the same order,
        so that few rows that were learned are held out. Temporary networks of folds start again, for all epochs so far.
        The earlier model stays until `fit` is done.
    random_state : int, RandomState or None
        Seed of initial weights, row order and dropout.
    verbose : {0, 1}
        1 for a progress bar on a terminal, and elsewhere for a line per epoch, at most every ten seconds.

    Attributes
    ----------
    fitted_ : FittedModel
        The trained model, immutable. The other attributes are parts of it; setting parameters does not change them.
    plan_ : TrainingPlan
        The decisions of the last call of `fit` or `partial_fit`, with their reasons.
    classes_, n_features_in_, feature_names_in_, vectorizer_ : ndarray (L,), int, ndarray, TextVectorizer
        Names of the labels, number and names of the features, and the vectorizer of texts. The last two exist only if X
        had names or was texts.
    params_ : ndarray of float32
        The flat parameters (`Network.layout`).
    history_, loss_curve_, n_epochs_ : list of dict, list of float, int
        One record per epoch, with `rows` and `seconds` counted from the start of its call; the loss of each epoch; the
        number of epochs. All count from the last `fit` without `warm_start`.
    label_counts_, n_samples_seen_ : ndarray of int64 (L,), int
        Number of training rows that had each label, and of all training rows, of the last `fit` and every later
        `partial_fit`; without rows of weight 0.
    candidates_, candidates_seconds_ : CandidateModel or None, float
        The k-NN index, linear classifiers and stacking; and the seconds that learning them took after the network was
        trained, including the temporary networks of folds.
    device_, precision_ : str
        The device that predicts (the first of those that trained), and the precision of its products, "float32" or
        "bfloat16". Both are saved with the model. A processor without bfloat16 predicts in float32.
    """

    hidden_layer_sizes: Sequence[int] | Literal["auto"] = "auto"
    _: KW_ONLY
    loss: str = "auto"
    optimizer: str | Optimizer = "auto"
    learning_rate_init: float | Literal["auto"] = "auto"
    learning_rate: str = "linear"
    warm_up: float = 0.02
    batch_size: int | Literal["auto"] = "auto"
    negatives: int | Literal["auto", "all"] = "auto"
    sampler: str = "auto"
    gradient_rounding: float | Literal["auto"] = "auto"
    candidates: int | Literal["auto"] = "auto"
    max_epochs: int | Literal["auto"] = "auto"
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    hidden_dropout: float = 0.0
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_epochs_no_change: int = 3
    tol: float = 1e-4
    class_weight: dict[Any, float] | str | None = None
    algorithm: Any = "auto"
    vectorizer: TextVectorizer | None = None
    devices: str = "cpu"
    precision: str = "auto"
    n_jobs: int | None = None
    warm_start: bool = False
    random_state: Any = None
    verbose: int = 0

    params_ = fitted_attribute("float_params", "Parameters, float32 and flat (`Network.layout`).")
    candidates_ = fitted_attribute(
        "candidates", "The k-NN index, linear classifiers and stacking; None for the network alone."
    )
    candidates_seconds_ = fitted_attribute("candidates_seconds", "Seconds of learning candidates after the network.")
    device_ = fitted_attribute("device", "The device that predicts.")
    precision_ = fitted_attribute("precision", "The precision of its products.")
    history_ = fitted_attribute("history", "One record per epoch.")
    n_epochs_ = fitted_attribute("n_epochs", "Number of epochs since the last `fit` without `warm_start`.")
    loss_curve_ = fitted_attribute("loss_curve", "The loss of each epoch.")

    save, load = saving.save, classmethod(saving.load)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any = None,  # required; the default lets the error say what is missing
        sample_weight: ArrayLike | None = None,
        eval_set: tuple[Any, Any] | None = None,
        *,
        label_names: Sequence[Any] | None = None,
        groups: ArrayLike | Literal["similar"] | None = None,
        label_texts: Any = None,
        feature_names: Sequence[str] | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: Checkpoint | str | PathLike[str] | None = None,
    ) -> XMLClassifier:
        """Learn from rows and their labels.

        If an error ends training (one raised by a callback, a full disk, the loss of the last worker, Ctrl-C), what
        was learned until then is kept; if nothing was, the estimator does not change.

        Parameters
        ----------
        X : matrix, CSR or texts
            Rows (n, F).
        y : indicator (n, L), label lists or classes (n,)
            Their labels.
        sample_weight : array of float (n,), optional
            Weights of the rows; `fit` divides them by their mean, `partial_fit` takes them as they are. Rows of
            weight 0 are not learned.
        eval_set : (X, y), optional
            Rows that are evaluated after every epoch: P@1, P@3 and P@5 in percent, in `history_`.
        label_names : list, optional
            Names of the columns of an indicator matrix, in order. Tables have names of their own. With `warm_start`,
            they begin with those of the earlier `fit`.
        groups : array of int or str (n,), or "similar", optional
            Groups of rows that are alike, such as the records of one library. All rows of a group are held out, or
            none, so that stacking, thresholds and early stopping suit rows of new groups. "similar" is for new rows
            that will differ from these in unknown ways: rows with the same rarest feature are held out together.
        label_texts : list, dict or matrix (L, F), optional
            Texts of the labels: one for each column, or None; or {label: text}, which with label lists may include
            labels that no row has; or the features of such texts. They are learned as rows, but not counted.
        feature_names : list of str, optional
            The word of each column of X, unless X is texts. Label texts are read with them, and explanations name them.
        callbacks : list of Callback
            Called at the events of the run.
        checkpoint : path or Checkpoint, optional
            A folder in which to save what was learned so far, every ten minutes. If the process is killed, the same
            call in another process resumes from there. The folder is removed when `fit` is done.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If the input is invalid.
        MemoryEstimateError
            If the run would not fit into memory; raised before it starts.
        DivergenceError
            If the loss is not finite in the first epoch. In a later epoch, `fit` warns and keeps the last good model.
        """
        check_callbacks(callbacks)
        rows = GivenRows(
            X, y, sample_weight=sample_weight, eval_set=eval_set, groups=groups, label_texts=label_texts,
            feature_names=feature_names,
        )  # fmt: skip
        return self._fit_data(self._read_rows(rows, label_names), callbacks, as_checkpoint(checkpoint))

    def _read_rows(self, rows: GivenRows, label_names: Sequence[Any] | None = None) -> TrainingData:
        """Return the rows for `fit`, read and checked."""
        check_parameters(self)
        earlier, names = self._continued(), names_of_columns(label_names)
        if earlier is not None:
            names = earlier.classes if names is None else with_further_columns(earlier.classes, names, "label_names")
        return read_training_data(self, rows, names=names, earlier=earlier)

    def _planned(self, data: TrainingData, seed: int = 0) -> tuple[TrainingPlan, TrainingData]:
        """Return the plan of `fit` for these rows, and the rows, of which early stopping may hold some out."""
        earlier = self._continued()
        data = with_validation_share(self, data, earlier, seed)
        return make_plan(self, data, earlier), data

    def _fit_data(
        self, data: TrainingData, callbacks: Sequence[Callback] = (), checkpoint: Checkpoint | None = None
    ) -> XMLClassifier:
        """Learn from rows that `_read_rows` has read, for this model or one that reads rows alike.

        Ensembles and searches read them once for models of other seeds, sizes and rates. Parameters are not checked.
        """
        earlier = self._continued()
        seed = draw_seed(self, checkpoint) if earlier is None else earlier.seed
        plan, data = self._planned(data, seed)
        memory.check(plan, data, getattr(self, "fitted_", None))
        if earlier is None:  # later calls transform rows like the first
            data = data.transformed(plan.features, self.n_jobs)
        Fitting(plan, data, earlier, seed, partial(self._keep, plan)).train(callbacks, checkpoint)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        label_texts: Any = None,
        feature_names: Sequence[str] | None = None,
    ) -> XMLClassifier:
        """Learn from more rows in one pass at a constant learning rate.

        Columns of X and labels may be added at any time. The optimizer continues from the last call, but starts again
        after `fit` and `load`. The learning rate is low for a model that `fit` has trained with held-out rows, so that
        it forgets little. k-NN index, co-occurrence and linear classifiers learn the rows, too; a row passed again
        counts twice. Each call copies the model, so that one call with many rows costs less than many calls.

        Parameters
        ----------
        X, y, sample_weight, label_texts, feature_names
            As in `fit`. Pass only texts of new labels: those of earlier calls are already learned.
        classes : list, optional
            All labels: those seen before, those in y, and those of later calls.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If the input is invalid, or a label is not among `classes`.
        DivergenceError
            If the loss is not finite; the model does not change.
        """
        check_parameters(self)
        earlier = getattr(self, "fitted_", None)
        if earlier is not None:
            earlier.check_trainable("the model")
        seed = draw_seed(self) if earlier is None else earlier.seed
        names = with_declared(earlier and earlier.classes, classes, y)
        rows = GivenRows(X, y, sample_weight=sample_weight, label_texts=label_texts, feature_names=feature_names)
        data = read_training_data(self, rows, names=names, earlier=earlier, adds_rows=True)
        check_declared(data.names, None if classes is None else names)
        plan = make_plan(self, data, earlier, adds_rows=True)
        memory.check(plan, data, earlier)
        Fitting(plan, data, earlier, seed, partial(self._keep, plan)).add_rows()
        return self

    def plan(
        self,
        X: Any,
        y: Any,
        eval_set: tuple[Any, Any] | None = None,
        groups: ArrayLike | Literal["similar"] | None = None,
        *,
        label_texts: Any = None,
        feature_names: Sequence[str] | None = None,
    ) -> TrainingPlan:
        """Return how `fit` would train on these rows, without training.

        Parameters
        ----------
        X, y, eval_set, groups, label_texts, feature_names
            As in `fit`.

        Returns
        -------
        TrainingPlan
            `print` shows each decision with its reason, and how much memory `fit` would need.
        """
        rows = GivenRows(X, y, eval_set=eval_set, groups=groups, label_texts=label_texts, feature_names=feature_names)
        plan, data = self._planned(self._read_rows(rows))
        return memory.with_estimate(plan, memory.estimate(plan, data, getattr(self, "fitted_", None))["total"])

    def estimate_memory(self, X: Any, y: Any, eval_set: tuple[Any, Any] | None = None) -> dict[str, int]:
        """Return the bytes of memory that `fit` would need, without training.

        Parameters
        ----------
        X, y, eval_set
            As in `fit`.

        Returns
        -------
        dict
            Bytes by part, and their sum as "total": parameters, optimizer_state, earlier_model (if already fitted),
            folds (a temporary network that leaves out one of them), data (without memory maps), replicas and workers
            (processes, and their merge states), names (of the labels), buffers, candidates. The memory of a GPU is
            listed by its name, such as "cuda:0", and is not in the sum.
        """
        plan, data = self._planned(self._read_rows(GivenRows(X, y, eval_set=eval_set)))
        return {**memory.estimate(plan, data, getattr(self, "fitted_", None)), **memory.on_gpus(plan, data)}

    def _keep(self, plan: TrainingPlan, fitted: FittedModel) -> None:
        """Keep what was learned, also by a run that an error has ended, and the plan of its training."""
        self.plan_, self.fitted_ = plan, fitted

    def _continued(self) -> FittedModel | None:
        """Return the model from which `fit` continues, if any."""
        earlier: FittedModel | None = getattr(self, "fitted_", None) if self.warm_start else None
        if earlier is not None:
            earlier.check_trainable("the model")
        return earlier
