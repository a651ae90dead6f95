"""The estimator: a sparse neural network for multi-label and multi-class data, with scikit-learn's rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from os import PathLike
from typing import Any, Literal

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from ..data.csr import CSR
from ..data.vectorizer import TextVectorizer
from ..nn.optimizers import Optimizer
from ..training.callbacks import Callback
from ..training.checkpoints import Checkpoint
from . import memory, saving
from .fitted import learned
from .fitting import Fitting, as_checkpoint, check_callbacks, draw_seed, train_more
from .inference import Scorer
from .names import names_of_columns
from .parameters import checked_parameters
from .plan import TrainingPlan
from .planning import make_plan
from .predicting import Predictor
from .targets import check_declared, declared
from .training_data import GivenRows, read_training_data


@dataclass(eq=False, repr=False)
class XMLClassifier(Predictor, BaseEstimator):
    """A neural network with a sparse input layer and a full output layer for up to millions of labels.

    X is dense, a scipy sparse matrix, a `CSR` (memory maps are read in place) or texts. Labels are

    - an indicator matrix (n, L), scipy sparse, `CSR` or dense; `predict` answers with a scipy CSR array, or densely
      where Y was dense;
    - a list of label lists, names int or str; `predict` answers with a scipy CSR array, columns as in `classes_`;
    - one class a row (1-D); `predict` answers with classes.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int or "auto"
        Units of the hidden layers, at least one; "auto" for (256,), and for (64,) beside candidates with at most 10,000
        rows and more than 1,000 features and labels.
    loss : {"auto", "bce", "softmax", "squared_hinge"}
        "bce" for independent labels, "softmax" where labels of a row share its probability; "auto" for bce, without
        candidates and for one class a row softmax.
    optimizer : {"adam", "adagrad", "row_adagrad", "momentum", "sgd"} or Optimizer
        An object has numbers of its own.
    learning_rate_init : float or "auto"
        The peak learning rate, "auto" for what suits the optimizer (Adam: 6e-3; 3e-2 in the short run beside
        candidates).
    learning_rate : {"linear", "cosine", "constant", "inverse_sqrt"}
        Its schedule: how it falls over the run. "cosine" with `warm_up=0.3` is a one-cycle rate.
    warm_up : float
        Share of the run, in [0, 1), over which it first rises from zero to its peak.
    batch_size : int or "auto"
        Rows a step; "auto" for 256, less on less than 16,384 rows.
    negatives : int, "all" or "auto"
        Labels besides its own true ones that a batch trains. With 16,000 labels, 1,024 make an epoch several times as
        fast at nearly the same precision; "auto" for 256 beside candidates, 1,024 where `sampler` draws, else all.
    sampler : {"auto", "all", "uniform"}
        What draws them: "auto" for "uniform".
    gradient_rounding : float or "auto"
        Threshold in [0, 1), times a row's weight: smaller gradients of labels a row lacks become it or 0 at random,
        which keeps their mean (stochastic gradient sparsification). Twice as fast at the same precision, not for GPUs;
        "auto" for 0.1 with BCE by Adam and 1,000 labels or more; 0 for exact gradients.
    candidates : int or "auto"
        Candidate labels per row: those of its nearest training rows. Votes of these neighbors and linear classifiers
        are stacked with the network (docs/candidates.md). 0 for the network alone; "auto" for 64, or all labels where
        they are fewer, if there are 100 rows or more, the loss is bce, and features are sparse: at most three quarters
        of the squared values of X lie in features that half of the rows have.
    max_epochs : int or "auto"
        Passes over the rows; "auto" for 10, more where that would be fewer than 600 steps; 4 beside candidates, if
        features and labels are more than 1,000.
    weight_decay, clip_norm : float
        See `Optimizer`; for an optimizer given by name.
    input_dropout, hidden_dropout : float
        Shares in [0, 1) left out in training.
    early_stopping : bool
        Stop when P@1 on `eval_set`, or on a `validation_fraction` of the rows, has not risen by more than `tol` (a
        fraction) for `n_epochs_no_change` epochs; the best model is kept. `partial_fit` learns all rows.
    validation_fraction, tol : float
        See `early_stopping`.
    n_epochs_no_change : int
        See `early_stopping`.
    class_weight : dict, "balanced" or None
        For one class a row: {class: weight}, 1 where none is given. Rows of a class of weight 0 are not learned.
    algorithm : str or Algorithm
        How several workers learn together: a name, with or without options (docs/algorithms.md), or an object, which
        has a batch size and a learning rate; "auto" for what suits their speeds.
    vectorizer : TextVectorizer or None
        What turns texts into rows: `fit` fits a copy to its texts, or copies a fitted one with its words; `vectorizer_`
        is the copy, to which `partial_fit` adds words. None for words, or for n-grams of characters where neighbors of
        held-out texts share more labels by these.
    devices : str
        The workers: "cpu", or several as in "cpu*2", each a process, or a thread where all are GPUs.
    precision : {"auto", "float32", "bfloat16"}
        Of the matrix products; "auto" for the faster one of this processor.
    n_jobs : int or None
        Threads of all workers; None for as many as the work can feed, -1 for all cores. With one, a seed gives the
        same bits, unless `algorithm` is one for several workers. Unless it leaves cores free, candidates are learned on
        as many more while one worker trains.
    warm_start : bool
        Begin `fit` with the parameters of the last one: more epochs over the same rows, and others if there are any;
        fewer rows are refused (`partial_fit` learns from new ones). Pass earlier rows first and in their order, so that
        few that were learned are held out. The earlier model stays until `fit` is done. Models of folds begin anew, for
        all epochs so far.
    random_state : int, RandomState or None
        Seed of weights, row order and dropout.
    verbose : {0, 1}
        1 for a progress bar on a terminal, elsewhere a line an epoch, ten seconds apart or more.

    Attributes
    ----------
    fitted_ : FittedModel
        What was learned; immutable. The other attributes are its parts, which no parameter that is set later changes.
    plan_ : TrainingPlan
        What the last call of `fit` or `partial_fit` decided, and why.
    classes_, n_features_in_, feature_names_in_, vectorizer_ : ndarray (L,), int, ndarray, TextVectorizer
        Names of the labels, number and names of features, and what turns texts into rows; the last two where X had any.
    params_ : ndarray of float32
        The flat parameters (`Network.layout`).
    history_, loss_curve_, n_epochs_ : list of dict, list of float, int
        One record an epoch, whose `rows` and `seconds` of training count from the start of its call; losses; epochs of
        all fits since the last fresh one.
    label_counts_, n_samples_seen_ : ndarray of int64 (L,), int
        Rows of the last `fit`, and of each `partial_fit` behind it, that had each label, and how many there were.
    candidates_, candidates_seconds_ : CandidateModel or None, float
        The k-NN index, linear classifiers and stacking, and what learning them took after the network, with the models
        of folds, which are not kept.
    device_, precision_ : str
        The device that predicts, the first of those that trained, and the precision of its products, "float32" or
        "bfloat16", both saved with the model. (A processor without bfloat16 predicts in float32.)
    """

    hidden_layer_sizes: Sequence[int] | Literal["auto"] = "auto"
    _: KW_ONLY
    loss: str = "auto"
    optimizer: str | Optimizer = "adam"
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
    input_dropout: float = 0.0
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

    params_ = learned("float_params", "Parameters, float32 and flat (`Network.layout`).")
    candidates_ = learned("candidates", "The k-NN index, linear classifiers and stacking; None for the network alone.")
    candidates_seconds_ = learned("candidates_seconds", "What learning the candidates took after the network.")
    device_ = learned("device", "The device that predicts.")
    precision_ = learned("precision", "The precision of its products.")
    history_ = learned("history", "One record an epoch.")
    n_epochs_ = learned("n_epochs", "Epochs of all fits since the last fresh one.")
    loss_curve_ = learned("loss_curve", "The loss of each epoch.")

    save, load = saving.save, classmethod(saving.load)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    def _scorer(self, X: CSR) -> Scorer:
        return self.fitted_.scorer(X, self.n_jobs)

    def fit(
        self,
        X: Any,
        y: Any = None,  # without which the error says what is missing
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

        Where an error of whatever kind ends training (a callback's, a full disk, the last worker that dies, Ctrl-C),
        what was learned until then is kept; where nothing was, the estimator is what it was before.

        Parameters
        ----------
        X : matrix, CSR or texts
            Rows (n, F).
        y : indicator (n, L), label lists or classes (n,)
            Their labels.
        sample_weight : array of float (n,), optional
            Weights of the rows.
        eval_set : (X, y), optional
            Rows that are measured after every epoch: P@1, P@3 and P@5 in percent in `history_`.
        label_names : list, optional
            Names of the columns of an indicator, in their order; those of a table have theirs.
        groups : array of int or str (n,), or "similar", optional
            Groups of rows that are alike, such as the records of one library: wherever rows are held out, all of a
            group are, or none, so that stacking, thresholds and early stopping suit rows of new groups. "similar" means
            that new rows will be unlike these, though their groups are not known: rows with the same rarest feature
            are held out together.
        label_texts : list, dict or matrix (L, F), optional
            What labels are called: a text for each column, None where there is none, or {label: text}, with label lists
            also of labels that no row has; or their features. Rows of these words are learned, but not counted.
        feature_names : list of str, optional
            The word of each column of X, where X is no texts: label texts are made of them, and explanations name them.
        callbacks : list of Callback
            Called at the events of the run.
        checkpoint : path or Checkpoint, optional
            A folder for what was learned so far, every ten minutes: where the process was killed, the same call in
            another one resumes from there. It is removed when all is learned.

        Returns
        -------
        self

        Raises
        ------
        DataError
            For input that breaks a rule.
        MemoryEstimateError
            Before a run that would not fit into memory.
        DivergenceError
            Where the loss is not finite in the first epoch; later it warns and keeps the last good model.
        """
        given = checked_parameters(self)
        check_callbacks(callbacks)
        checkpoint, fitted = as_checkpoint(checkpoint), getattr(self, "fitted_", None)
        earlier = fitted if self.warm_start else None
        seed = draw_seed(self, checkpoint) if earlier is None else earlier.seed
        names = names_of_columns(label_names) if earlier is None else earlier.classes
        rows = GivenRows(
            X, y, sample_weight=sample_weight, eval_set=eval_set, groups=groups, label_texts=label_texts,
            feature_names=feature_names,
        )  # fmt: skip
        data = read_training_data(given, rows, names=names, earlier=earlier, anew=True, seed=seed)
        plan = make_plan(given, data, earlier)
        memory.check(plan, data, fitted)
        fitting = Fitting(plan, data, earlier, seed, partial(setattr, self, "fitted_"))
        self.fitted_ = fitting.train(callbacks, checkpoint)
        self.plan_ = plan
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
        """Learn from more rows in one pass at a constant rate.

        Columns of X and labels may be added at any time. The optimizer goes on where the last call left it, but starts
        anew behind `fit` and `load`. The rate is low in a model that `fit` has trained, so that it forgets little. k-NN
        index, co-occurrence and linear classifiers learn the rows, too. A call copies the model: many rows in one cost
        less than many calls.

        Parameters
        ----------
        X, y, sample_weight, label_texts, feature_names
            As in `fit`; texts of new labels, as those of earlier calls are learned.
        classes : list, optional
            All labels: those seen before, those of y, and those that later calls will bring.

        Returns
        -------
        self

        Raises
        ------
        DataError
            For input that breaks a rule, and a label that is not among `classes`.
        DivergenceError
            Where the loss is not finite; the model stays as it was.
        """
        given = checked_parameters(self)
        given.early_stopping = False  # there is one pass; rows held out of it would be learned by no later call
        earlier = getattr(self, "fitted_", None)
        if earlier is not None:
            earlier.check_learns_on("the model")
        seed = draw_seed(self) if earlier is None else earlier.seed
        names = declared(earlier and earlier.classes, classes, y)
        rows = GivenRows(X, y, sample_weight=sample_weight, label_texts=label_texts, feature_names=feature_names)
        data = read_training_data(given, rows, names=names, earlier=earlier, seed=seed)
        check_declared(data.names, None if classes is None else names)
        plan = make_plan(given, data, earlier, adds_rows=True)
        memory.check(plan, data, earlier)
        self.fitted_ = train_more(plan, data, earlier, seed, partial(setattr, self, "fitted_"))
        self.plan_ = plan
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
        """Return how `fit` would train on these rows; nothing is trained.

        Parameters
        ----------
        X, y, eval_set, groups, label_texts, feature_names
            As in `fit`.

        Returns
        -------
        TrainingPlan
            `print` shows every decision, its value and the reason.
        """
        given = checked_parameters(self)
        rows = GivenRows(X, y, eval_set=eval_set, groups=groups, label_texts=label_texts, feature_names=feature_names)
        return make_plan(given, read_training_data(given, rows))

    def estimate_memory(self, X: Any, y: Any, eval_set: tuple[Any, Any] | None = None) -> dict[str, int]:
        """Return the bytes that `fit` would take; nothing is trained.

        Parameters
        ----------
        X, y, eval_set
            As in `fit`.

        Returns
        -------
        dict
            Bytes by part, and their sum as "total": parameters, optimizer_state, earlier_model (a fitted one), folds
            (a second model, which leaves held-out rows out), data (without memory maps), replicas and workers
            (processes, and what they merge), names (of the labels), buffers, candidates. What a GPU takes stands by its
            name, "cuda:0", and is not in the sum.
        """
        given = checked_parameters(self)
        data = read_training_data(given, GivenRows(X, y, eval_set=eval_set))
        plan = make_plan(given, data)
        return {**memory.estimate(plan, data, getattr(self, "fitted_", None)), **memory.on_gpus(plan, data)}
