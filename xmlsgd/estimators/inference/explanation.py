"""What a score is made of, as a value that prints itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

SHOWN = 5  # features and neighbors of a line of text
NETWORK, NEIGHBORS, LINEAR, COOCCURRENCE, INTERCEPT = TERMS = (
    "network", "neighbors", "linear classifiers", "co-occurrence", "intercept",
)  # fmt: skip


class Term(NamedTuple):
    """A summand of a score. value : the input of the stacking. weight : times the value; None for trees and means."""

    name: str
    value: float
    weight: float | None
    contribution: float


class FeaturePart(NamedTuple):
    """What a feature, by name or else by number, contributes."""

    feature: Any
    contribution: float


class Neighbor(NamedTuple):
    """A training row that votes for the label, its cosine similarity, and its share of all votes."""

    row: int
    similarity: float
    share: float


@dataclass(frozen=True)
class Explanation:
    """What the score of a label is made of.

    Attributes
    ----------
    label : name of the label
    column : int
        Its column.
    score : float
        As `predict_topk` returns it; of an ensemble, the mean of the classifiers' scores.
    terms : tuple of Term
        Their contributions sum to the score. With candidates they are the inputs of the stacking: network, neighbors,
        linear classifiers, co-occurrence and intercept. A network alone has one.
    features : tuple of FeaturePart
        With candidates, weight x value of each feature of the row in the linear classifier: with `bias` they sum to the
        margin, the value of its term. Of a network alone, with `bias` they sum to the logit. Largest first.
    bias : float
        The part of the margin, or of the logit, that depends on no feature.
    neighbors : tuple of Neighbor
        Training rows that voted for the label, nearest first; their shares sum to the label's share of the votes.
    cooccurrence : tuple of FeaturePart
        Features that propose the label; they sum to its co-occurrence. Largest first.
    is_candidate : bool
        Whether the label was a candidate of the row; if not, only the network has scored it.
    """

    label: Any
    column: int
    score: float
    terms: tuple[Term, ...]
    features: tuple[FeaturePart, ...] = ()
    bias: float = 0.0
    neighbors: tuple[Neighbor, ...] = ()
    cooccurrence: tuple[FeaturePart, ...] = ()
    is_candidate: bool = True

    @classmethod
    def mean(cls, members: Sequence[Explanation]) -> Explanation:
        """Return the mean of explanations of one label by several models, in which what one model lacks is 0."""
        if len(members) == 1:
            return members[0]

        def sums(groups: Sequence[Sequence[Any]]) -> dict[Any, np.ndarray]:
            found: dict[Any, np.ndarray] = {}
            for key, *numbers in (each for group in groups for each in group):
                found[key] = found.get(key, 0) + np.array(numbers) / len(members)
            return found

        terms = sums([[(t.name, t.value, t.contribution) for t in each.terms] for each in members])
        shares = sums([each.neighbors for each in members]).items()
        features, cooccurrence = (
            ordered(FeaturePart(key, *numbers.tolist()) for key, numbers in sums(groups).items())
            for groups in ([each.features for each in members], [each.cooccurrence for each in members])
        )
        return replace(
            members[0],
            score=float(np.mean([each.score for each in members])),
            terms=tuple(Term(key, value, None, part) for key, (value, part) in terms.items()),
            features=features,
            bias=float(np.mean([each.bias for each in members])),
            neighbors=ordered(Neighbor(key, *numbers.tolist()) for key, numbers in shares),
            cooccurrence=cooccurrence,
            is_candidate=any(each.is_candidate for each in members),
        )

    def named(self, label: Any, words: Sequence[Any] | None) -> Explanation:
        """Return the explanation with the names of label and features, None for none, in place of their columns."""
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
        words = [f"{part.feature} {part.contribution:+.3g}" for part in self.features]
        rows = [f"row {each.row} {each.share:.3g}" for each in self.neighbors]
        parts = [f"{part.feature} {part.contribution:.3g}" for part in self.cooccurrence]
        details = {NEIGHBORS: rows, LINEAR: words, COOCCURRENCE: parts}
        if len(self.terms) == 1:
            details[NETWORK] = words
        lines = [f"{self.label}  score {self.score:.4g}{'' if self.is_candidate else '  (no candidate)'}"]
        for term in self.terms:
            shown = details.get(term.name, [])
            text = ", ".join([*shown[:SHOWN], *(["..."] if len(shown) > SHOWN else [])])
            lines.append(f"  {term.name:<18} {term.contribution:+8.3f}  {text}".rstrip())
        return "\n".join(lines)


def ordered(parts: Any) -> tuple[Any, ...]:
    """Return parts by falling size of their last number."""
    return tuple(sorted(parts, key=lambda part: -abs(part[-1])))
