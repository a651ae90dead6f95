"""Explain the scores of labels: their terms, and what each feature and neighbor contributes to a term.

The kernels of the scorer compute the parts, which therefore have the same rounding, also in compact models. Margins of
rows with one feature are weight x value; a k-NN index whose labels are its own rows returns the share of each neighbor
in the votes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ...candidates import CandidateModel
from ...candidates.knn import MAX_POSTINGS, N_NEIGHBORS
from ...candidates.stacking import N_MODELS, Inputs, log_probability, meta_features
from ...candidates.weighting import unit_rows
from ...data.csr import CSR
from .candidate_scorer import CandidateScorer, logits_of_pairs
from .rankings import MeanScorer
from .scorer import Scorer, weight_rows

SHOWN = 5  # features or neighbors in a line of text
NETWORK, NEIGHBORS, LINEAR, COOCCURRENCE, INTERCEPT = TERMS = (
    "network", "neighbors", "linear classifiers", "co-occurrence", "intercept",
)  # fmt: skip
EXCLUSION = "exclusion"  # a further term of models in which labels exclude each other


class Term(NamedTuple):
    """A summand of a score.

    name : one of TERMS or EXCLUSION. value : input of stacking. weight : weight of the value; None if the contribution
    is not weight x value, as with trees and in means of models. contribution : the summand.
    """

    name: str
    value: float
    weight: float | None
    contribution: float


class FeaturePart(NamedTuple):
    """The contribution of a feature, given by its name ("near row 17" for a landmark) or, without names, its number."""

    feature: Any
    contribution: float


class Neighbor(NamedTuple):
    """A training row that votes for the label.

    row : its number among all training rows; None for the text of the label (`label_texts`). similarity : its cosine
    similarity. share : its share of all votes.
    """

    row: int | None
    similarity: float
    share: float


@dataclass(frozen=True)
class Explanation:
    """The parts of the score of a label.

    Attributes
    ----------
    label : int or str
        Name of the label.
    column : int
        Column of the label.
    score : float
        Score as returned by `predict_topk`; for an ensemble, the mean of the classifiers' scores.
    terms : tuple of Term
        Summands of the score. With candidates, there is one for each input of stacking (network, neighbors, linear
        classifiers, co-occurrence), an intercept, and exclusion by other labels if the model learned it. A label that
        is not a candidate has terms of network and intercept. A network alone has one term.
    features : tuple of FeaturePart
        With candidates, weight x value of each feature of the row in the linear classifier of the label; with `bias`
        they sum to the margin, the value of that term. For a network alone, they sum to the logit with `bias`. Largest
        first.
    bias : float
        The part of the margin, or of the logit, that depends on no feature.
    neighbors : tuple of Neighbor
        Training rows that voted for the label, nearest first; their shares sum to the label's vote. The text of the
        label is one of them if it was learned.
    cooccurrence : tuple of FeaturePart
        Features that propose the label, largest first; they sum to its co-occurrence.
    is_candidate : bool
        Whether the label was a candidate of the row; otherwise only the network has scored it.
    """

    label: Any
    column: int
    score: float
    terms: tuple[Term, ...] = field(repr=False)
    features: tuple[FeaturePart, ...] = field(default=(), repr=False)
    bias: float = 0.0
    neighbors: tuple[Neighbor, ...] = field(default=(), repr=False)
    cooccurrence: tuple[FeaturePart, ...] = field(default=(), repr=False)
    is_candidate: bool = True

    @classmethod
    def mean(cls, members: Sequence[Explanation]) -> Explanation:
        """Return the mean of explanations of one label by several models; parts that a model lacks count as 0."""

        def sums(groups: Sequence[Sequence[Any]]) -> dict[Any, np.ndarray]:
            found: dict[Any, np.ndarray] = {}
            for key, *numbers in (each for group in groups for each in group):
                found[key] = found.get(key, 0) + np.array(numbers) / len(members)
            return found

        terms = sums([[(t.name, t.value, t.contribution) for t in each.terms] for each in members])
        shares = sums([each.neighbors for each in members]).items()
        features, cooccurrence = (
            _ordered(FeaturePart(key, *numbers.tolist()) for key, numbers in sums(groups).items())
            for groups in ([each.features for each in members], [each.cooccurrence for each in members])
        )
        return replace(
            members[0],
            score=float(np.mean([each.score for each in members])),
            terms=tuple(Term(key, value, None, part) for key, (value, part) in terms.items()),
            features=features,
            bias=float(np.mean([each.bias for each in members])),
            neighbors=_ordered(Neighbor(key, *numbers.tolist()) for key, numbers in shares),
            cooccurrence=cooccurrence,
            is_candidate=any(each.is_candidate for each in members),
        )

    def named(self, label: Any, words: Sequence[Any] | None) -> Explanation:
        """Return the explanation with names in place of columns; `words` names the features, None for no names."""
        if words is None:
            return replace(self, label=label)
        features, cooccurrence = (
            tuple(part._replace(feature=words[part.feature]) for part in parts)
            for parts in (self.features, self.cooccurrence)
        )
        return replace(self, label=label, features=features, cooccurrence=cooccurrence)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as dictionaries and lists, for JSON."""
        found = asdict(self)
        for name in ("terms", "features", "neighbors", "cooccurrence"):
            found[name] = [each._asdict() for each in getattr(self, name)]
        return found

    def __str__(self) -> str:
        words = [f"{_shown(part.feature)} {part.contribution:+.3g}" for part in self.features]
        rows = [
            f"{'text of the label' if each.row is None else f'row {each.row}'} {each.share:.3g}"
            for each in sorted(self.neighbors, key=lambda each: -each.share)
        ]
        parts = [f"{_shown(part.feature)} {part.contribution:.3g}" for part in self.cooccurrence]
        details = {NEIGHBORS: rows, LINEAR: words, COOCCURRENCE: parts}
        if len(self.terms) == 1:
            details[NETWORK] = words
        lines = [f"{self.label}  score {self.score:.4g}{'' if self.is_candidate else '  (no candidate)'}"]
        for term in self.terms:
            shown = details.get(term.name, [])
            text = ", ".join([*shown[:SHOWN], *(["..."] if len(shown) > SHOWN else [])])
            lines.append(f"  {term.name:<18} {term.contribution:+8.3f}  {text}".rstrip())
        return "\n".join(lines)


def _shown(feature: Any) -> str:
    """Return a feature as text, quoted if it begins or ends with a space, as n-grams of characters may."""
    text = str(feature)
    return text if text and text == text.strip() else repr(text)


def explain_row(scorer: Scorer | MeanScorer, X: CSR, labels: np.ndarray) -> list[Explanation]:
    """Return explanations of the labels, int32 (m,), of one row."""
    if isinstance(scorer, MeanScorer):
        members = [explain_row(each, X, labels) for each in scorer.scorers]
        return [Explanation.mean(each) for each in zip(*members, strict=True)]
    if isinstance(scorer, CandidateScorer):
        return explain_stacked(scorer, X, labels)
    return explain_network(scorer, X, labels)


def explain_network(scorer: Scorer, X: CSR, labels: np.ndarray) -> list[Explanation]:
    """Return explanations of the logits of a network.

    With ReLU, a logit is a linear function of the row as long as the same units are active. Therefore a feature
    contributes value x gradient, and the rest is the bias.
    """
    features, values = X.row(0)
    first, *hidden, output = scorer.host_layers
    W0 = weight_rows(first, features) * values[:, None].astype(np.float64)
    a = np.maximum(W0.sum(axis=0) + first.b, 0)
    masks = [a > 0]
    for layer in hidden:
        a = np.maximum(layer.W.astype(np.float64) @ a + layer.b, 0)
        masks.append(a > 0)
    gradient = weight_rows(output, labels).astype(np.float64) * masks[-1]
    for layer, mask in zip(reversed(hidden), reversed(masks[:-1]), strict=True):
        gradient = (gradient @ layer.W) * mask
    parts = W0 @ gradient.T
    ((_, logits),) = scorer.logits(X, labels)
    return [
        Explanation(
            int(label), int(label), float(z), (Term(NETWORK, float(z), 1.0, float(z)),),
            _parts(features, part), float(z - part.sum()),
        )
        for label, z, part in zip(labels, logits[0], parts.T, strict=True)
    ]  # fmt: skip


def explain_stacked(scorer: CandidateScorer, X: CSR, labels: np.ndarray) -> list[Explanation]:
    """Return explanations of stacked scores; X : one row."""
    model, device, pairs = scorer.candidates, scorer.cpu, logits_of_pairs(scorer, scorer.cpu)
    listed, found = model.inputs(X, pairs, device)
    if not (listed >= 0).any():
        return [replace(each, is_candidate=False) for each in explain_network(scorer, X, labels)]
    is_candidate = np.isin(labels, listed[0])
    explained = iter(_explain_candidates(scorer, X, labels[is_candidate], listed, found) if is_candidate.any() else [])
    return [
        next(explained) if known else _explain_non_candidate(model, int(label), float(log_probability(logit)))
        for label, logit, known in zip(labels, pairs(X, labels[None])[0], is_candidate, strict=True)
    ]


def _explain_candidates(
    scorer: CandidateScorer, X: CSR, labels: np.ndarray, listed: np.ndarray, found: Inputs
) -> list[Explanation]:
    """Return explanations of candidates of a row, given all its candidates, int32 (1, M), and their inputs, (1, M)."""
    model, device, pairs = scorer.candidates, scorer.cpu, logits_of_pairs(scorer, scorer.cpu)
    columns = [int(np.flatnonzero(listed[0] == label)[0]) for label in labels]
    inputs = np.stack(found, axis=-1)[0, columns]
    terms = [_logistic_terms(model, row) for row in inputs]
    if model.stacking.trees is not None:
        empty = CSR(np.zeros(2, np.int64), X.indices[:0], X.data[:0], X.n_cols)
        parts = _tree_parts(model, labels, inputs, pairs(empty, labels[None])[0], device)
        terms = list(map(_with_tree_parts, terms, parts))
    if (exclusion := model.stacking.exclusion) is not None:
        n, weight, without = model.n_excluding, exclusion.weight, model.stacking._replace(exclusion=None)
        added = model.stacking.scores(listed, found, n, device) - without.scores(listed, found, n, device)
        of_rows = zip(terms, added[0, columns].tolist(), strict=True)
        terms = [[*row, Term(EXCLUSION, part / weight, weight, part)] for row, part in of_rows]
    with device.start():
        scaled, unit = unit_rows(X, model.feature_weights, device), unit_rows(X, None, device)
        margins = _margin_parts(model, unit, labels, device)
        neighbors = _neighbors(model, scaled, device)
    proposers = _proposers(model, scaled, labels)
    explanations = []
    for j, label in enumerate(labels.tolist()):
        # No neighbors are listed for a label that only co-occurrence proposed: stacking gets no votes for it.
        voted = [each for each, names in neighbors if label in names and inputs[j, 1] > 0]
        explanations.append(
            Explanation(
                label, label, sum(term.contribution for term in terms[j]), tuple(terms[j]),
                features=_parts(unit.indices, margins[:, j]), bias=float(model.linear.bias[label]),
                neighbors=_with_one_text(voted), cooccurrence=proposers[j],
            )
        )  # fmt: skip
    return explanations


def _explain_non_candidate(model: CandidateModel, label: int, log_probability: float) -> Explanation:
    """Return the explanation of a label that is not a candidate, given its log probability by the network."""
    weight, intercept = model.non_candidates
    part = weight * log_probability
    terms = Term(NETWORK, log_probability, weight, part), Term(INTERCEPT, 1.0, intercept, intercept)
    return Explanation(label, label, part + intercept, terms, is_candidate=False)


def _logistic_terms(model: CandidateModel, inputs: np.ndarray) -> list[Term]:
    """Return the terms of logistic regression: weight x input for each input, float32 (4,), and the intercept."""
    values = [*meta_features(*inputs).tolist(), 1.0]
    weights = np.float32(model.stacking.regression).tolist()
    return [Term(name, x, w, w * x) for name, x, w in zip(TERMS, values, weights, strict=True)]


def _with_tree_parts(terms: list[Term], parts: list[float]) -> list[Term]:
    """Return the terms with the parts of the trees added to their contributions, which weights explain no longer."""
    return [
        term._replace(weight=None, contribution=term.contribution + part)
        for term, part in zip(terms, parts, strict=True)
    ]


def _tree_parts(
    model: CandidateModel, labels: np.ndarray, inputs: np.ndarray, logits_without: np.ndarray, device: Any
) -> list[list[float]]:
    """Return what each input, and finally a constant, contributes to the correction by trees: m lists of 5.

    inputs : float32 (m, 4). logits_without : the logits of a row without features, float32 (m,).

    Contributions are baseline Shapley values (Sundararajan and Najmi 2020): what an input adds when it replaces that of
    the row without features, averaged over all orders of replacement. The constant is the correction of that row. The
    frequency of the label is the same in both rows.
    """
    assert model.stacking.trees is not None
    without = np.zeros_like(inputs)
    without[:, 0], without[:, 2] = logits_without, model.linear.bias[labels]
    subsets = np.array(list(product([False, True], repeat=N_MODELS)))
    mixed = np.where(subsets[:, None], inputs, without)
    with device.start():
        of_models = [np.ascontiguousarray(mixed[..., i]) for i in range(N_MODELS)]
        nothing = np.zeros_like(of_models[0])
        scores = model.stacking.trees.corrected(nothing, np.tile(labels, (len(subsets), 1)), of_models, device)
        scores = scores.astype(np.float64)
    number = 1 << np.arange(N_MODELS)[::-1]  # the number of a subset is the sum of these over its members
    parts = np.zeros(inputs.shape)
    for subset, before in zip(subsets, scores, strict=True):
        size = int(subset.sum())
        for i in np.flatnonzero(~subset):
            share = math.factorial(size) * math.factorial(N_MODELS - 1 - size) / math.factorial(N_MODELS)
            parts[:, i] += share * (scores[number[subset].sum() + number[i]] - before)
    return np.concatenate([parts, scores[:1].T], axis=1).tolist()


def _margin_parts(model: CandidateModel, unit: CSR, labels: np.ndarray, device: Any) -> np.ndarray:
    """Return weight x value of each feature of a row of norm 1 for each label, float32 (nnz, m)."""
    alone = CSR(np.arange(unit.nnz + 1), unit.indices, unit.data, unit.n_cols)
    margins = model.linear.margins(alone, np.tile(labels, (unit.nnz, 1)), device)
    return margins - model.linear.bias[labels]


def _neighbors(model: CandidateModel, scaled: CSR, device: Any) -> list[tuple[Neighbor, list[int]]]:
    """Return the training rows that vote, nearest first, each with its labels; the device must have been started."""
    knn, n_rows = model.knn, model.knn.Y.n_rows
    pointers = np.arange(n_rows + 1, dtype=knn.Y.indptr.dtype)  # a type that the kernel is compiled for
    numbers = np.arange(n_rows, dtype=knn.postings.indices.dtype)  # row numbers, which a type of labels may not hold
    itself = CSR(pointers, numbers, np.broadcast_to(np.float32(1), n_rows), n_rows)
    (rows,), (shares,) = replace(knn, Y=itself).votes(scaled, N_NEIGHBORS, device)
    shares, rows = shares[rows >= 0], rows[rows >= 0]
    order = np.argsort(rows)
    shares, rows = shares[order], rows[order]
    # Cosines are summed over the posting lists that the kernel reads: the shortest ones, up to MAX_POSTINGS entries.
    lengths = np.diff(knn.postings.indptr)[scaled.indices]
    shortest = np.argsort(lengths, kind="stable")
    read = shortest[np.cumsum(lengths[shortest]) <= MAX_POSTINGS]
    cosines = np.zeros(len(rows))
    entries, n_each = knn.postings.positions_of(scaled.indices[read]), lengths[read]
    sizes = scaled.data[read] * knn.scales_of(scaled.indices[read])
    products = np.repeat(sizes, n_each) * knn.postings.data[entries].astype(np.float64)
    listed = knn.postings.indices[entries]
    hit = np.isin(listed, rows)
    np.add.at(cosines, np.searchsorted(rows, listed[hit]), products[hit])
    numbered = rows - np.searchsorted(model.label_rows, rows)
    named = np.where(np.isin(rows, model.label_rows), None, numbered)
    labels = [knn.Y.row(row)[0].tolist() for row in rows.tolist()]
    cosines = np.minimum(cosines, 1)  # rounding in a compact model may exceed it
    found = map(Neighbor, named.tolist(), cosines.tolist(), shares.tolist())
    return sorted(zip(found, labels, strict=True), key=lambda each: -each[0].similarity)


def _with_one_text(neighbors: list[Neighbor]) -> tuple[Neighbor, ...]:
    """Return the neighbors with all texts of the label as one: several calls of `partial_fit` may have learned it."""
    found: dict[int | None, Neighbor] = {}  # nearest first
    for each in neighbors:
        first = found.get(each.row)
        found[each.row] = each if first is None else first._replace(share=first.share + each.share)
    return tuple(found.values())


def _proposers(model: CandidateModel, scaled: CSR, labels: np.ndarray) -> list[tuple[FeaturePart, ...]]:
    """Return, for each label, what each feature contributes to the co-occurrence of row and label."""
    shares, scale = model.cooccurrence.shares, model.cooccurrence.share_scale
    sizes = np.abs(scaled.data) / (np.abs(scaled.data).sum(dtype=np.float64) or 1)
    entries, n_each = shares.positions_of(scaled.indices), np.diff(shares.indptr)[scaled.indices]
    named = shares.indices[entries]
    features = np.repeat(scaled.indices, n_each)
    parts = np.repeat(sizes * scale[scaled.indices], n_each) * shares.data[entries].astype(np.float32)
    return [_parts(features[named == label], parts[named == label]) for label in labels]


def _parts(features: np.ndarray, parts: np.ndarray) -> tuple[FeaturePart, ...]:
    """Return the features whose part is not 0, with their parts, largest first."""
    return _ordered(FeaturePart(int(f), float(part)) for f, part in zip(features, parts, strict=True) if part)


def _ordered(parts: Any) -> tuple[Any, ...]:
    """Return parts by decreasing absolute value of their last number."""
    return tuple(sorted(parts, key=lambda part: -abs(part[-1])))
