"""The estimator: a sparse neural network for multi-label and multi-class data, with scikit-learn's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from . import saving
from .gpu_memory import on_gpus
from .learning import Trainer
from .parameters import check_parameters
from .task import prepare

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..data.vectorizer import TextVectorizer
    from ..nn.optimizers import Optimizer


class XMLClassifier(Trainer, BaseEstimator):
    """A neural network with a sparse input layer and a full output layer for up to millions of labels.

    `fit` takes X dense, as scipy sparse matrix, as `CSR` (memory maps are read in place) or as texts, and labels as

    - an indicator matrix (n, L), scipy sparse, `CSR` or dense; `predict` answers with a scipy CSR array, or densely
      where Y was dense;
    - a list of label lists, names int or str; `predict` answers with a scipy CSR array, columns as in `classes_`;
    - one class a row (1-D); `predict` answers with classes.

    Parameters
    ----------
    hidden_layer_sizes : units of the hidden layers, at least one.
    loss : "bce" (independent labels), "softmax" (labels of a row share its probability), "squared_hinge", or "auto":
        softmax for one class a row, else bce.
    optimizer : "adam", "adagrad", "row_adagrad", "momentum", "sgd", or an `Optimizer` with its own numbers.
    learning_rate_init : the rate at the start; "auto" for what suits the optimizer (Adam: 6e-3).
    learning_rate : how it falls over the run: "linear", "cosine", "constant", "inverse_sqrt".
    warm_up : share of the run, in [0, 1), over which the rate rises from zero.
    batch_size : rows a step; "auto" for 256, less on less than 16,384 rows.
    sampler : which labels a batch trains: "all", or its own true labels and `negatives` others, by their "uniform" or
        weighted "frequency", "hard" ones by clusters of labels, or SLIDE's "lsh"; "auto" for uniform where `negatives`
        are drawn, else all.
    negatives : how many labels besides its own true ones a batch trains, drawn anew for each, or "all". With 16,000
        labels, 1,024 make an epoch several times as fast at nearly the same precision; "auto" for that beside a
        shortlist, else all.
    gradient_rounding : threshold in [0, 1), times a row's weight. A smaller gradient of a label that the row lacks is
        rounded at random, to the threshold or to nothing, which keeps its mean (gradient sparsification); a label that
        keeps none in a batch is not updated, nor are its weights decayed. Twice as fast at the same precision, not for
        GPUs. "auto" for 0.1 with BCE by Adam, where 1,000 labels or more are trained or drawn; 0 for exact gradients.
    candidates : how many labels come into question for a row, those of its nearest training rows. On them, what these
        neighbors say and a linear path from features to labels are weighed together with the network (see
        `docs/shortlist.md`). 0 for the network alone; "auto" for 64 where `fit` sees 2,000 rows or more and 64 times
        as many labels as a row has on average.
    stacking : how the scores of candidates are combined, learned from rows that are held out: "logistic", a regression,
        from 2 % of the rows (at least 400 or a tenth), or "boosted", gradient-boosted trees that also see how frequent
        a label is, from 10 % of 10,000 rows or more; up to half a point at P@1 more accurate, a little slower to train.
    max_epochs : passes over the rows; "auto" for 10, more where that would be fewer than 600 steps; beside a shortlist
        as many as make 500 steps.
    weight_decay, clip_norm : see `Optimizer`; for an optimizer given by name.
    input_dropout, hidden_dropout : shares in [0, 1) left out in training.
    average_weights : share of the run, in [0, 1], whose models are averaged at its end; not with early_stopping.
    early_stopping : stop when P@1 on `eval_set`, or on a `validation_fraction` of the rows, has not risen by more
        than `tol` (a fraction) for `n_epochs_no_change` epochs; the best model is kept.
    class_weight : None, "balanced" or {class: weight}, 1 where none is given; for one class a row. Rows of a class of
        weight 0 are not learned.
    algorithm : how several workers learn together: a name, with options (docs/algorithms.md) or without, or an
        `Algorithm` with a batch size and a rate of its own; "auto" for what suits their speeds.
    vectorizer : what turns texts into rows: a `TextVectorizer`, of which `fit` fits a copy to its texts, or, fitted, is
        taken as it is; None for one with its defaults.
    devices : who works: "cpu", or several as in "cpu*2", each a process, or a thread where all are GPUs; the threads
        of `n_jobs` are shared out.
    precision : of the matrix products, "float32", "bfloat16", or "auto" for the faster one of this processor.
    n_jobs : threads, at most one a core; None for as many as the work can feed, -1 for all cores, -2 for all but one.
        With one, a seed gives the same bits.
    warm_start : begin `fit` with the parameters of the last one. Either way the earlier model stays in memory, and is
        what the estimator goes back to if `fit` fails.
    random_state : seed of weights, row order and dropout.
    verbose : 1 for a progress bar on a terminal, elsewhere a line an epoch, ten seconds apart or more. That kernels are
        compiled, about a minute once on a machine, is always told, by the logger "xmlsgd".

    Attributes
    ----------
    classes_ (L,) names of the label columns; n_features_in_; feature_names_in_ where X had them; params_, float32,
    the flat parameters (`Network.layout`); history_, one record an epoch, whose `rows` and `seconds` of training (no
    reading, compiling or measuring) count from the start of its call; loss_curve_; n_epochs_, of all fits since the
    last fresh one; label_counts_, int64 (L,), the rows of the last `fit`, and of each `partial_fit` behind it, that had
    each label, of n_samples_seen_ in all; candidates_seconds_, what learning the shortlist took behind the last epoch;
    vectorizer_, where X was texts, which is saved along; device_, on which the model predicts, the first of those that
    trained it, and precision_, "float32" or "bfloat16", of its products: both are decided by `fit` and saved with the
    model, so that no parameter set later changes what it answers. (A processor without bfloat16 predicts in float32.)

    `score` is the accuracy for one class a row, and P@1 for multi-label data: subset accuracy, scikit-learn's usual
    choice there, is near zero for any model with many labels.
    """

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] = (256,),
        *,
        loss: str = "auto",
        optimizer: str | Optimizer = "adam",
        learning_rate_init: float | Literal["auto"] = "auto",
        learning_rate: str = "linear",
        warm_up: float = 0.02,
        batch_size: int | Literal["auto"] = "auto",
        sampler: str = "auto",
        negatives: int | Literal["auto", "all"] = "auto",
        gradient_rounding: float | Literal["auto"] = "auto",
        candidates: int | Literal["auto"] = "auto",
        stacking: str = "logistic",
        max_epochs: int | Literal["auto"] = "auto",
        weight_decay: float = 0.0,
        clip_norm: float = 0.0,
        input_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        average_weights: float = 0.0,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_epochs_no_change: int = 3,
        tol: float = 1e-4,
        class_weight: dict[Any, float] | str | None = None,
        algorithm: Any = "auto",
        vectorizer: TextVectorizer | None = None,
        devices: str = "cpu",
        precision: str = "auto",
        n_jobs: int | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.loss = loss
        self.optimizer = optimizer
        self.learning_rate_init = learning_rate_init
        self.learning_rate = learning_rate
        self.warm_up = warm_up
        self.batch_size = batch_size
        self.sampler = sampler
        self.negatives = negatives
        self.gradient_rounding = gradient_rounding
        self.candidates = candidates
        self.stacking = stacking
        self.max_epochs = max_epochs
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.input_dropout = input_dropout
        self.hidden_dropout = hidden_dropout
        self.average_weights = average_weights
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_epochs_no_change = n_epochs_no_change
        self.tol = tol
        self.class_weight = class_weight
        self.algorithm = algorithm
        self.vectorizer = vectorizer
        self.devices = devices
        self.precision = precision
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        # Buffers and handles of a device belong to the process.
        state: dict[str, Any] = super().__getstate__()
        return {**state, "_scorers": {}} if "_scorers" in state else state

    def __copy__(self) -> XMLClassifier:
        # What learns on changes these arrays in place, and must not change those of another model.
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__getstate__())
        for name in ("_params", "optimizer_state_"):
            array = getattr(self, name, None)
            if isinstance(array, np.ndarray) and array.flags.writeable:
                setattr(other, name, array.copy())
        return other

    def estimate_memory(self, X: Any, y: Any, eval_set: tuple[Any, Any] | None = None) -> dict[str, int]:
        """Return the bytes that `fit(X, y)` would take by part, with their sum as "total"; nothing is trained.

        Parts: parameters, optimizer_state, average, earlier_model (a fitted one, which stays until the new one is
        done), data (without memory maps), replicas and workers (processes, and what they merge), names (of the labels),
        buffers, evaluation (of `eval_set`, or of rows held out for early stopping), candidates. What a GPU's memory
        holds stands by its name, "cuda:0", and is not in the sum.
        """
        check_parameters(self)
        probe = XMLClassifier(**self.get_params(deep=False))
        probe._seed = 0  # which rows would be held out does not matter
        task = prepare(probe, X, y, None, None, None, eval_set, listing=True)
        return {**probe._estimate(task, self._learned_bytes()), **on_gpus(task)}

    def save(self, path: str | Path, *, predict_only: bool = False, compact: bool = False) -> None:
        """Write the model to a directory of JSON and plain arrays, with checksums; nothing in it is code.

        `predict_only` leaves out the optimizer's state; `compact` does, too, and rounds weights to int8, which changes
        P@k by hundredths and makes the folder a sixth as large. Neither can be trained on.

        An earlier model at `path` is replaced, as a file by `joblib.dump`, in one step once the new one is whole; until
        then, and where that fails, it stays what it was. Raises `ModelFileError` where `path` is, or holds, anything
        else.
        """
        check_is_fitted(self)
        saving.save(self, path, predict_only, compact)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        predict_only: bool = True,
        verify: bool = True,
        device: str | None = None,
        precision: str | None = None,
    ) -> XMLClassifier:
        """Return the model that `save` wrote.

        With `predict_only` the parameters stay a read-only memory map; else `partial_fit` goes on exactly where the
        saved model was. A compact model is mapped as it is, and opened in milliseconds; what it follows is checked when
        it predicts. `verify` compares checksums of files that have changed since that was done (`checked.json` in the
        folder). `device` and `precision`, as "cpu" and "float32", say where and in which precision the model predicts;
        None for `device_` and `precision_` as they were saved. Raises `ModelFileError` for a directory that `save` did
        not write, or that was altered.
        """
        return saving.load(cls, path, predict_only, verify, device, precision)
