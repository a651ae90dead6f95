"""Ablation of the default model: the network alone, and all combinations of k-NN, linear classifiers and network."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from xmlsgd import XMLClassifier
from xmlsgd.candidates.cooccurrence import N_COOCCURRING_IN_TRAINING, Cooccurrence
from xmlsgd.candidates.fitting import most_voted, training_candidates
from xmlsgd.candidates.held_out_pairs import frequency_of_learned
from xmlsgd.candidates.knn import KNNIndex
from xmlsgd.candidates.linear import LinearClassifiers
from xmlsgd.candidates.model import n_voted, with_more
from xmlsgd.candidates.stacking import LogisticStacking, meta_features
from xmlsgd.candidates.weighting import idf_weights, unit_rows
from xmlsgd.cli.commands.compile import compile_kernels
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.held_out import held_out_folds
from xmlsgd.devices.cpu import CPU
from xmlsgd.estimators.defaults import (
    CANDIDATE_EPOCHS,
    CANDIDATE_NEGATIVES,
    HIDDEN,
    N_CANDIDATES,
    auto_batch_size,
    auto_rate,
)
from xmlsgd.estimators.inference import Scorer
from xmlsgd.estimators.inference.candidates import pair_scores
from xmlsgd.nn.optimizers.adam import Adam

from .plan import Plan
from .prepare import prepared_shape
from .report import Table, publish
from .runs import measures

PATHS = ("network", "neighbors", "linear", "co-occurrence")  # in the order of `LogisticStacking`
ROUNDED = {  # gradients of all labels, by threshold
    0.0: "network, all labels",
    **{threshold: f"... with gradients rounded at {threshold:g}" for threshold in (0.03, 0.1, 0.3)},
}
SHARED = "network, negatives that a batch shares"
CALIBRATED = "... with margins calibrated by frequency: the default"
K = 5


@dataclass
class Clock:
    """Seconds by part."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time what is done inside."""
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start

    def total(self, names: set[str]) -> float:
        """Return the seconds of several parts."""
        return sum(self.seconds[name] for name in names)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Scores of candidate labels (n, m) by each base model: values (n, m, 4), in the order of `PATHS`."""

    labels: np.ndarray
    values: np.ndarray

    def calibrated(self, factors: np.ndarray, shifts: np.ndarray) -> Evidence:
        """Return the same with the margin of each label multiplied and shifted, by float32 (L,)."""
        values = self.values.copy()
        values[..., 2] = values[..., 2] * factors[self.labels] + shifts[self.labels]
        return Evidence(self.labels, values)

    def of(self, paths: tuple[str, ...]) -> np.ndarray:
        """Return the values of some base models, zeros for the others."""
        return self.values * np.isin(PATHS, paths).astype(np.float32)

    def best(self, paths: tuple[str, ...], stacking: LogisticStacking) -> np.ndarray:
        """Return the best K labels of each row by some base models, int32 (n, K)."""
        scores = self.of(paths) @ np.array(stacking[:-1], np.float32)
        scores[self.labels < 0] = -np.inf
        return np.take_along_axis(self.labels, np.argsort(-scores, axis=1, kind="stable")[:, :K], axis=1)


def ablation(prepared: Path, plan: Plan) -> None:
    """Learn every part once; print and write the table of all ways to put them together."""
    X, Y, X_test = (CSR.from_scipy(sp.load_npz(prepared / f"{name}.npz")) for name in ("X.trn", "Y.trn", "X.tst"))
    compile_kernels({"n_jobs": plan.threads})
    found = {
        name: {"train_seconds": seconds, "measures": measures(prepared, ranking)}
        for name, seconds, ranking in variants(Dataset(X, Y), X_test, plan.threads)
    }
    result = {"shape": prepared_shape(prepared), "variants": found}
    publish(f"ablation-{prepared.name}", table(prepared.name, found), result, plan.threads, plan.out)


def variants(rows: Dataset, X_test: CSR, threads: int) -> Iterator[tuple[str, float, np.ndarray]]:
    """Yield what was put together, its seconds of training, and its best K labels of the test rows."""
    clock, held_out = Clock(), held_out_folds(rows.n_rows, seed=0)[0]
    rate, _ = auto_rate(Adam(), auto_batch_size(rows.n_rows, True), CANDIDATE_EPOCHS)
    weight = np.ones(rows.n_rows, np.float32)
    weight[held_out] = 0

    def network(negatives: int | Literal["all"], rounding: float | Literal["auto"] = "auto") -> XMLClassifier:
        model = XMLClassifier(
            HIDDEN, candidates=0, negatives=negatives, gradient_rounding=rounding, learning_rate_init=rate,
            max_epochs=CANDIDATE_EPOCHS, n_jobs=threads, random_state=0,
        )  # fmt: skip
        return model.fit(rows.X, rows.Y, sample_weight=weight)

    for threshold, name in ROUNDED.items():
        with clock.part(name):
            model = network("all", threshold)
        yield name, clock.seconds[name], model.predict_topk(X_test, K)[0]
    with clock.part("network"):
        model = network(CANDIDATE_NEGATIVES)
    yield SHARED, clock.seconds["network"], model.predict_topk(X_test, K)[0]
    learned, tested = paths(rows, X_test, held_out, weight, model, CPU(threads), clock)
    known, truth = learned.labels >= 0, rows.Y.take(held_out).has(learned.labels)
    truth = truth[known]
    for n in range(1, len(PATHS) + 1):
        for chosen in itertools.combinations(PATHS, n):
            if chosen == ("network",):
                continue  # on the neighbors' lists, which it would owe to them
            with clock.part("stacking"):
                stacking = LogisticStacking.fit(learned.of(chosen)[known], truth)
            needed = {
                "neighbors",
                "co-occurrence",
                *chosen,
                *(["lists"] if "linear" in chosen else []),
                *(["stacking"] if n > 1 else []),
            }
            yield " + ".join(chosen), clock.total(needed), tested.best(chosen, stacking)
    with clock.part("stacking"):
        before = frequency_of_learned(rows.Y, weight, np.ones_like(weight))
        after = rows.Y.column_counts().astype(np.float32)
        stacking, calibration = LogisticStacking.fit_calibrated(
            learned.values[known], truth, before[learned.labels[known]]
        )  # fmt: skip
    yield (
        CALIBRATED,
        clock.total({*PATHS, "lists", "stacking"}),
        tested.calibrated(*calibration.factors(after)).best(PATHS, stacking),
    )


def paths(
    rows: Dataset,
    X_test: CSR,
    held_out: np.ndarray,
    weight: np.ndarray,
    model: XMLClassifier,
    device: CPU,
    clock: Clock,
) -> tuple[Evidence, Evidence]:
    """Train k-NN index, co-occurrence and linear classifiers; return all scores of held-out rows and of test rows."""
    size, X, Y = min(N_CANDIDATES, rows.n_labels), rows.X, rows.Y
    logits = pair_scores(Scorer(model.network_, model.params_, device), device)
    with clock.part("neighbors"), device.start():
        scale = idf_weights(X)
        scaled = unit_rows(X, scale, device)
        neighbors = KNNIndex.build(scaled, Y, np.ones(rows.n_rows, np.float32))
    with clock.part("co-occurrence"), device.start():
        plain = unit_rows(X, None, device)
        cooccurrence = Cooccurrence.count(plain, Y, weight, device)
    with clock.part("lists"), device.start():
        lists = training_candidates(neighbors, scaled, size, device)
        learned = replace(neighbors, weight=weight)  # rows that are held out do not vote for each other
        asked, shares = most_voted(*learned.votes(scaled.take(held_out), size, device))
        lists, _ = cooccurrence.candidates(plain, lists, device, N_COOCCURRING_IN_TRAINING)
    with clock.part("linear"), device.start():
        linear = LinearClassifiers.fit(plain, Y, weight, lists, device)

    def evidence(X: CSR, labels: np.ndarray, votes: np.ndarray) -> Evidence:
        with device.start():
            unit = unit_rows(X, None, device)
            labels, shares = cooccurrence.candidates(unit, labels, device)
            margins = linear.margins(unit, labels, device)
        return Evidence(labels, meta_features(logits(X, labels), with_more(votes), margins, shares))

    with device.start():
        named, votes = neighbors.votes(unit_rows(X_test, scale, device), n_voted(size), device)
    return evidence(X.take(held_out), asked, shares), evidence(X_test, named, votes)


def table(name: str, found: dict[str, dict[str, Any]]) -> Table:
    """Return the table, in the order in which parts are put together."""
    names = [f"{measure}@{k}" for measure in ("P", "PSP") for k in (1, 3, 5)]
    rows = [
        [variant, *(f"{run['measures'][each]:.2f}" for each in names), f"{run['train_seconds']:.1f}"]
        for variant, run in found.items()
    ]
    notes = [
        "All labels are trained with exact gradients unless a threshold is named, drawn ones with what is the default.",
        "From the neighbors on, all rank the candidates of neighbors and co-occurrence; the seconds include theirs.",
    ]
    return Table(f"What each part buys on {name}", ["what is asked", *names, "train s"], rows, notes)
