"""Ablation of the default model: without each of its parts in turn, and each base model alone.

What the stacking learns from is computed once; each variant learns its own stacking from what is left of it. Candidates
stay, but for those by co-occurrence where this is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp

from xmlsgd import XMLClassifier
from xmlsgd.candidates import CandidateModel, HeldOutPairs, fitting, stacking_training
from xmlsgd.candidates.cooccurrence import N_COOCCURRING
from xmlsgd.candidates.fitting import BaseModels, fit_candidate_model
from xmlsgd.candidates.stacking import Inputs, LogisticStacking, MarginCalibration
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.devices.cpu import CPU
from xmlsgd.estimators import candidate_training
from xmlsgd.estimators.inference import Scorer
from xmlsgd.estimators.inference.candidate_scorer import logits_of_pairs

from .plan import Plan
from .report import Table, publish
from .runs import measures

DEFAULT = "the default"
BASE_MODELS = dict(zip(Inputs._fields, ("network", "neighbors", "linear classifiers", "co-occurrence"), strict=True))
CORRECTIONS = ("trees", "exclusion", "calibration of margins")
K = 5
MEASURES = ("P@1", "P@3", "P@5", "PSP@1")


@dataclass(frozen=True, eq=False)
class Learned:
    """A default model, and what its stacking was learned from: margins that are not calibrated, and held-out pairs."""

    model: XMLClassifier
    found: BaseModels
    pairs: HeldOutPairs
    device: CPU


def ablation(prepared: Sequence[Path], plan: Plan) -> None:
    """Print and write what each part buys on each data set, means of several seeds."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for folder in prepared:
        X, Y, X_test = (CSR.from_scipy(sp.load_npz(folder / f"{name}.npz")) for name in ("X.trn", "Y.trn", "X.tst"))
        told: dict[str, list[dict[str, float]]] = {}
        for seed in range(plan.seeds):
            for name, ranking in variants(learn(Dataset(X, Y), plan.threads, seed), X_test):
                told.setdefault(name, []).append(measures(folder, ranking))
        found[folder.name] = {name: _mean(runs) for name, runs in told.items()}
    publish("ablation", table(found), found, plan.threads, plan.out)


def _mean(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    return {each: float(np.mean([run[each] for run in runs])) for each in MEASURES}


def learn(rows: Dataset, threads: int, seed: int) -> Learned:
    """Fit the default model."""
    kept: list[tuple[BaseModels, HeldOutPairs]] = []

    def keep(found: BaseModels, pairs: HeldOutPairs, device: CPU) -> Any:
        kept.append((deepcopy(found), pairs))  # before the margins are calibrated, in place
        return fit_candidate_model(found, pairs, device)

    with patch.object(candidate_training, "fit_candidate_model", keep):
        model = XMLClassifier(n_jobs=threads, random_state=seed).fit(rows.X, rows.Y)
    return Learned(model, *kept[0], CPU(threads))


def variants(learned: Learned, X: CSR) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name of each variant and its best K labels of the rows."""
    model, device = learned.model, learned.device
    yield DEFAULT, model.predict_topk(X, K)[0]
    for part in (*CORRECTIONS, *BASE_MODELS):
        changed = copy(model)
        changed.fitted_ = replace(model.fitted_, candidates=without(learned, part))
        yield f"without {BASE_MODELS.get(part, part)}", changed.predict_topk(X, K)[0]
    network = Scorer(model.network_, model.params_, device)
    labels, inputs = learned.found.model.inputs(X, logits_of_pairs(network, device), device)
    yield "network alone", network.top_k(X, K)[0]
    for values, name in zip(inputs[1:], [*BASE_MODELS.values()][1:], strict=True):
        best = np.argsort(np.where(labels >= 0, -values, np.inf), axis=1, kind="stable")[:, :K]
        yield f"{name} alone", np.take_along_axis(labels, best, axis=1)


def without(learned: Learned, part: str) -> CandidateModel:
    """Return the candidate model whose stacking is learned without a correction, or an input by its name."""
    pairs = learned.pairs if part in CORRECTIONS else _without_input(learned.pairs, part)
    with _left_out(part):
        model, _ = fit_candidate_model(deepcopy(learned.found), pairs, learned.device)
    if part in CORRECTIONS:
        return model
    if part == "cooccurrence":
        shares = model.cooccurrence.shares
        none = CSR.from_scipy(sp.csr_array((shares.n_rows, shares.n_cols), dtype=np.float32))
        model = replace(model, cooccurrence=replace(model.cooccurrence, shares=none))
    return replace(model, stacking=model.stacking._replace(regression=_ignoring(model.stacking.regression, part)))


def _left_out(part: str) -> AbstractContextManager[Any]:
    """Return the context in which stacking is learned without a correction."""
    if part == "trees":
        return patch.object(stacking_training, "fit_trees", lambda _, log_odds, *__: (None, log_odds))
    if part == "exclusion":
        return patch.object(fitting, "fit_exclusion", lambda _, stacking, found, *__: (stacking, found))
    if part in CORRECTIONS:

        def uncalibrated(features: np.ndarray, truth: np.ndarray, _: np.ndarray, pair_weights: np.ndarray) -> Any:
            return LogisticStacking.fit(features, truth, pair_weights), MarginCalibration()

        return patch.object(LogisticStacking, "fit_calibrated", uncalibrated)
    return nullcontext()


def _without_input(pairs: HeldOutPairs, part: str) -> HeldOutPairs:
    """Return the pairs with zeros for an input, and without the candidates that co-occurrence adds where it is that."""
    labels = pairs.labels.copy()
    if part == "cooccurrence":
        labels[:, -N_COOCCURRING:] = -1
    return replace(pairs, labels=labels, inputs=pairs.inputs._replace(**{part: np.zeros_like(pairs.inputs.logits)}))


def _ignoring(regression: LogisticStacking, part: str) -> LogisticStacking:
    """Return the regression that gives for any value of an input what it gives for 0."""
    nothing = np.zeros((len(Inputs._fields), 1), np.float32)
    field = LogisticStacking._fields[Inputs._fields.index(part)]
    ignoring = regression._replace(**{field: 0.0})
    moved = regression.scores(*nothing) - ignoring.scores(*nothing)
    return ignoring._replace(intercept=ignoring.intercept + float(moved[0]))


def table(found: dict[str, dict[str, dict[str, float]]]) -> Table:
    """Return the table, a row a variant, with the mean change of each measure over the data sets."""
    defaults = [[*of_set[DEFAULT].values()] for of_set in found.values()]
    rows = []
    for name in next(iter(found.values())):
        told = [[*of_set[name].values()] for of_set in found.values()]
        change = np.subtract(told, defaults).mean(axis=0)
        means = "" if name == DEFAULT else " ".join(f"{each:+.2f}" for each in change)
        rows.append([name, *("{:.2f}/{:.2f}/{:.2f}, {:.2f}".format(*row) for row in told), means])
    note = "P@1/3/5, PSP@1, and their mean changes. A base model alone ranks the candidates, the network all labels."
    return Table("What each part of the default model buys", ["model", *found, "mean change"], rows, [note])
