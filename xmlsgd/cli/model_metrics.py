"""Read test rows, rank their labels, timed, and compute metrics of the ranking."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..data.csr import CSR, Dataset
from ..data.text import Documents
from ..errors import DataError, warn
from ..estimators import Model
from ..estimators.inference.rankings import labels_above
from ..metrics import (
    LabelScores,
    evaluate_ranking,
    expected_calibration_error,
    inverse_propensity,
    label_scores,
    precision_by_group,
    recall_at_k,
    reliability,
)
from ..metrics.evaluation import USUAL_METRICS
from ..metrics.filtering import without_entries
from ..training.progress_bar import in_batches
from .input_options import InputOptions
from .input_warnings import warn_of_unknown
from .messages import Console
from .models import with_numbers
from .results import UriOf, csv_line, names_with_uri, table, text_file
from .sources import Columns, read_test, read_training_labels, without_gaps

KS = (1, 3, 5)
ZERO_SHOT_K = 10
PER_LABEL_COLUMNS = (
    "training_rows", "test_rows", "predicted_rows", "threshold", "mean_probability", "precision", "recall", "F1",
)  # fmt: skip
CALIBRATED_LABELS = 5  # calibration is measured on the best labels of each row; nearly all others have probability 0
FIRST_BINS = (0, 1, 2, 5, 10, 20, 50, 100)  # edges of bins of training rows; powers of ten follow
EXAMPLE_ROWS = 5
WORDS_SHOWN = 14  # words shown of an example
BATCH = 8192  # rows ranked between two updates of the progress bar


class Ranking(NamedTuple):
    """The best labels of test rows.

    labels : int32 (n, k). probabilities : float64 (n, k), None if scores are not probabilities. seconds : duration of
    ranking alone, without reading, compiling and evaluating. label_weight : the weights of labels in the ranking.
    dropped : entries (n, L) for the pairs of a row and a label that were left out. excluded : columns of labels that
    were not ranked.
    """

    labels: np.ndarray
    probabilities: np.ndarray | None
    seconds: float
    label_weight: np.ndarray | None = None
    dropped: CSR | None = None
    excluded: np.ndarray | None = None


class PerLabel(NamedTuple):
    """Each label at its threshold: scores, thresholds, and the mean probability of predicted pairs, float64 (L,)."""

    scores: LabelScores
    thresholds: np.ndarray
    mean_probability: np.ndarray


def read_test_rows(
    model: Model, test: str, options: InputOptions, propensity: str | None = None
) -> tuple[Dataset, CSR | None, list[str] | None]:
    """Read the test rows; the labels for propensities if `propensity` names a file; and texts of the rows, if any."""
    columns = Columns.of_model(model)
    Y_train = None
    if propensity:
        Y_train, columns = read_training_labels(propensity, options, columns)
    rows, texts = read_test(test, options, columns)
    known = model.classes_.tolist()
    warn_of_unknown(rows, len(known), test)
    return without_gaps(rows, with_numbers(known, columns.n_labels)), Y_train, texts


def rank_rows(
    model: Model, X: CSR, k: int = 5, quiet: bool = False, label_weight: np.ndarray | None = None,
    dropped: CSR | None = None, excluded: np.ndarray | None = None,
) -> Ranking:  # fmt: skip
    """Rank the k best labels of each row, timed, without `excluded` labels and the pairs that are `dropped`."""
    n_dropped = 0 if dropped is None else int(np.diff(dropped.indptr).max())
    wide, proba = min(k + n_dropped, len(model.classes_)), model.fitted_.has_probabilities
    labels, values, seconds = np.empty((X.n_rows, wide), np.int32), np.empty((X.n_rows, wide)), 0.0
    options: dict[str, Any] = {"exclude": excluded, "label_weight": label_weight, "proba": proba}
    model.load_kernels(X.span(0, min(BATCH, X.n_rows)), wide, label_weight=label_weight)  # outside the timed part
    for rows in in_batches(X.n_rows, BATCH, "ranking", quiet=quiet):
        part = X.span(rows[0], rows[-1] + 1)
        started = time.perf_counter()
        labels[rows], values[rows] = model.predict_topk(part, k=wide, **options)
        seconds += time.perf_counter() - started
    if dropped is not None:
        labels, values = (each[:, :k] for each in without_entries(labels, values, dropped))
    return Ranking(labels, values if proba else None, seconds, label_weight, dropped, excluded)


def evaluate(
    model: Model,
    test: Dataset,
    ranking: Ranking,
    ks: Sequence[int] = KS,
    inv_propensity: np.ndarray | None = None,
    metrics: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the metrics in percent (`evaluate_ranking`), "predict_seconds" and "predict_rows_per_second".

    Also "by_frequency": precision and recall of the five best labels, in bins of their training rows; and, if scores
    are probabilities, "ECE@5" and "reliability".
    """
    labels, probabilities, seconds = ranking.labels, ranking.probabilities, ranking.seconds
    found: dict[str, Any] = {"predict_seconds": seconds, "predict_rows_per_second": test.n_rows / max(seconds, 1e-9)}
    if probabilities is not None:
        best, probabilities = labels[:, :CALIBRATED_LABELS], probabilities[:, :CALIBRATED_LABELS]
        found["ECE@5"] = 100 * expected_calibration_error(test.Y, best, probabilities)
        found["reliability"] = {
            name: each.tolist() for name, each in reliability(test.Y, best, probabilities)._asdict().items()
        }
    five_best = labels[:, : KS[-1]]
    counts = training_rows(model, test.n_labels)
    found["by_frequency"] = by_frequency(test.Y, five_best, test.Y.has(five_best), counts)
    zero_shot = _zero_shot_recall(model, test, ranking)
    accuracy = evaluate_ranking(test.Y, labels, ks=ks, inv_propensity=inv_propensity, metrics=metrics)
    return {**accuracy, **zero_shot, **found}


def training_rows(model: Model, n_labels: int) -> np.ndarray:
    """Return the training rows of each label, int64 (n_labels,); 0 for labels that the model does not know."""
    return np.pad(model.label_counts_, (0, n_labels - len(model.classes_)))


def by_frequency(Y: CSR, labels: np.ndarray, hits: np.ndarray, counts: np.ndarray) -> list[dict[str, Any]]:
    """Return a record for each bin of training rows: labels, true and predicted pairs, precision and recall in percent.

    labels, hits (n, k) : the best labels, and whether they are true. counts (L,) : training rows of each label. The
    precision of no predicted pairs, and the recall of no true ones, is None.
    """
    edges = [*FIRST_BINS]
    while edges[-1] <= counts.max(initial=0):
        edges.append(10 * edges[-1])
    bin_of = np.searchsorted(edges, counts, side="right") - 1
    listed = (slice(None), Y.indices, labels[labels >= 0], labels[hits])
    n = [np.bincount(bin_of[each], minlength=len(edges) - 1) for each in listed]
    return [
        {
            "training_rows": [low, high - 1],
            "labels": n_labels,
            "true_pairs": n_true,
            "predicted_pairs": n_predicted,
            "precision": 100 * n_hits / n_predicted if n_predicted else None,
            "recall": 100 * n_hits / n_true if n_true else None,
        }
        for (low, high), (n_labels, n_true, n_predicted, n_hits) in zip(
            pairwise(edges), np.transpose(n).tolist(), strict=True
        )
        if n_labels
    ]


def evaluate_groups(test: Dataset, ranking: Ranking, ks: Sequence[int], groups: Sequence[str]) -> dict[str, Any]:
    """Return the mean of P@k over the groups of rows, its standard deviation, and the number of groups, "n"."""
    by_group = {at: precision_by_group(test.Y, ranking.labels, groups, at) for at in ks}
    mean = {f"P@{at}": 100 * each.mean for at, each in by_group.items()}
    spread = {f"P@{at} std": 100 * each.std for at, each in by_group.items()}
    return {"n": len(by_group[ks[0]].groups), **mean, **spread}


def compare_precision(hits: np.ndarray, other_hits: np.ndarray, ks: Sequence[int]) -> dict[str, Any]:
    """Return P@k of another model, the difference to it and its 95 % confidence interval, with rows paired; in percent.

    A single row has no interval: None. hits, other_hits : bool (n, k), whether the label at each rank is true.
    """
    found, n = {}, len(hits)
    for k in ks:
        other = 100 * other_hits[:, :k].sum(axis=1) / k
        difference = 100 * hits[:, :k].sum(axis=1) / k - other
        mean, interval = float(difference.mean()), None
        if n > 1:
            half_width = 1.96 * float(difference.std(ddof=1)) / n**0.5
            interval = [mean - half_width, mean + half_width]
        found[f"P@{k}"] = {"other": float(other.mean()), "difference": mean, "interval": interval}
    return found


def _zero_shot_recall(model: Model, test: Dataset, ranking: Ranking) -> dict[str, Any]:
    """Return the recall at 10 of true labels that no training row had, and their number; {} if there are none.

    The recall is a mean, in percent, over the rows that have such labels. These rows are ranked again, so that k of the
    timed ranking does not depend on their labels.
    """
    counts = training_rows(model, test.n_labels)
    unseen = test.Y.where(counts[test.Y.indices] == 0)
    if not unseen.nnz:
        return {}
    rows = np.flatnonzero(np.diff(unseen.indptr))
    dropped = ranking.dropped and ranking.dropped.take(rows)
    best = rank_rows(
        model, test.X.take(rows), ZERO_SHOT_K, True, ranking.label_weight, dropped, ranking.excluded
    ).labels
    recall = recall_at_k(unseen.take(rows), best, k=best.shape[1])[-1]
    return {f"zero_shot_R@{ZERO_SHOT_K}": 100 * float(recall), "zero_shot_labels": unseen.nnz}


def show(result: dict[str, Any], ks: Sequence[int], more: Sequence[str], console: Console) -> None:
    """Print a table of the metrics at each k, then the other metrics."""
    metrics = [name for name in dict.fromkeys((*USUAL_METRICS, *more)) if f"{name}@1" in result]
    console.answer(table({m: {f"@{k}": result[f"{m}@{k}"] for k in ks} for m in metrics}, [f"@{k}" for k in ks]))
    for line in describe(result):
        console.show(line)
    if "reliability" in result:
        console.show(reliability_table(result))


def describe(result: dict[str, Any]) -> list[str]:
    """Return lines about the results of `evaluate` and `evaluate_thresholds`, but for metrics at k."""
    lines = []
    if "micro F1" in result:
        micro = f"micro F1 {result['micro F1']:.2f} at the threshold {result['threshold']:.2f}"
        lines.append(f"{micro}, macro F1 {result['macro F1']:.2f} at one threshold per label")
    if asked := result.get("at_threshold"):
        shares = [f"{name} {asked[name]:.2f}" for name in ("precision", "recall", "micro F1")]
        lines.append(f"at the threshold {asked['threshold']}: {', '.join(shares)}")
    if "ECE@5" in result:
        lines.append(f"expected calibration error of the five best labels: {result['ECE@5']:.2f}")
    if "zero_shot_labels" in result:
        recall, n = result[f"zero_shot_R@{ZERO_SHOT_K}"], result["zero_shot_labels"]
        lines.append(f"R@{ZERO_SHOT_K} of the {n:,} true labels without training rows: {recall:.2f}")
    if groups := result.get("groups"):
        names = [name for name in groups if f"{name} std" in groups]
        each = [f"{name} {groups[name]:.2f} (std {groups[f'{name} std']:.2f})" for name in names]
        lines.append(f"mean of {groups['n']:,} groups: {', '.join(each)}")
    if compared := dict(result.get("against", {})):
        other = compared.pop("model")
        each = [
            f"{name} {found['difference']:+.2f}"
            + (" (95 % CI {:+.2f} to {:+.2f})".format(*found["interval"]) if found["interval"] else "")
            for name, found in compared.items()
        ]
        lines.append(f"compared with {other}: {', '.join(each)}")
    return lines


def reliability_table(result: dict[str, Any]) -> str:
    """Return a table of bins of probability: number of pairs, mean probability, share of true pairs in percent."""
    bins = result["reliability"]
    rows = {
        f"{100 * low:.0f} to {100 * high:.0f} %": {"pairs": n, "probability": 100 * p, "true": 100 * t}
        for low, high, n, p, t in zip(
            bins["edges"], bins["edges"][1:], bins["count"], bins["probability"], bins["true"], strict=False
        )
    }
    return table(rows, {"pairs": ",.0f", "probability": ".1f", "true": ".1f"})


def write_per_label(path: str, model: Model, names: Sequence[Any], per_label: PerLabel, uri_of: UriOf | None) -> None:
    """Write a CSV file with a line per label: name, URI if any, `PER_LABEL_COLUMNS`; all shares in percent."""
    counts, thresholds = model.label_counts_, per_label.thresholds.tolist()
    columns = zip(*(each.tolist() for each in (*per_label.scores, per_label.mean_probability)), strict=True)
    with text_file(path) as stream:
        stream.write(csv_line(["label", *([] if uri_of is None else ["uri"]), *PER_LABEL_COLUMNS]) + "\n")
        for label, (n_true, n_predicted, _, *shares, probability) in enumerate(columns):
            is_known = label < len(thresholds)  # only test rows have the others
            trained = int(counts[label]) if is_known else 0
            least = f"{thresholds[label]:.2f}" if is_known else ""
            mean = f"{100 * probability:.2f}" if n_predicted else ""
            shown = [trained, n_true, n_predicted, least, mean, *(f"{100 * share:.2f}" for share in shares)]
            stream.write(csv_line([*names_with_uri(names[label], uri_of), *shown]) + "\n")


def evaluate_thresholds(
    model: Model, test: Dataset, ranking: Ranking, threshold: float | str | None = None
) -> tuple[dict[str, Any], PerLabel | None]:
    """Return F1 at the learned thresholds, in percent, and each label at its own; {} and None without probabilities.

    threshold : one to measure, too, as of `predict`; each label is then scored at this one.
    """
    if not model.fitted_.has_probabilities:
        return {}, None
    micro, macro = model.thresholds_["micro"], model.thresholds_["macro"]
    thresholds = [np.full_like(macro, micro), macro]
    if threshold is not None:
        given = model.thresholds_[threshold] if isinstance(threshold, str) else threshold
        thresholds.append(np.full_like(macro, given))
    found = _labels_at(model, test, ranking, thresholds)
    f1 = {"micro F1": 100 * found[0].scores.micro_f1, "macro F1": 100 * found[1].scores.macro_f1}
    result: dict[str, Any] = {**f1, "threshold": micro}
    if threshold is not None:
        scores = found[2].scores
        n_hits, pairs = int(scores.n_hits.sum()), {"precision": scores.n_predicted, "recall": scores.n_true}
        shares = {name: 100 * n_hits / max(int(n.sum()), 1) for name, n in pairs.items()}
        result["at_threshold"] = {"threshold": threshold, **shares, "micro F1": 100 * scores.micro_f1}
    return result, found[-1]


def _labels_at(model: Model, test: Dataset, ranking: Ranking, thresholds: Sequence[np.ndarray]) -> list[PerLabel]:
    """Return each label at each of some thresholds, float64 (L,).

    Only rows that may have more labels above a threshold than `ranking` holds are ranked again; all rows if it has
    weights of labels, or if pairs were left out.
    """
    is_plain = ranking.label_weight is None and ranking.dropped is None
    first = (ranking.labels, ranking.probabilities) if is_plain else None

    def ask(rows: np.ndarray, k: int) -> Any:
        return model.predict_topk(test.X.take(rows), k, exclude=ranking.excluded, proba=True)

    rows, labels, probabilities = labels_above(ask, test.n_rows, np.min(thresholds, axis=0), first)
    if ranking.dropped is not None:
        probabilities[ranking.dropped.take(rows).has(labels[:, None])[:, 0]] = -np.inf

    def at(least: np.ndarray) -> PerLabel:
        kept = probabilities >= least[labels]
        predicted = (np.ones(kept.sum(), np.int8), (rows[kept], labels[kept]))
        scores = label_scores(test.Y, sp.csr_array(predicted, shape=test.Y.shape))
        sums = np.bincount(labels[kept], probabilities[kept], minlength=test.n_labels)
        return PerLabel(scores, least, sums / np.maximum(scores.n_predicted, 1))

    return list(map(at, thresholds))


def inverse_propensity_or_none(
    model: Model, n_labels: int, Y_train: CSR | None = None, A: float = 0.55, B: float = 1.5
) -> np.ndarray | None:
    """Return the inverse propensity of each label by the labels `Y_train`, by default those of the training rows.

    Warn and return None if the model was trained on too few rows.
    """
    if Y_train is not None:
        return inverse_propensity(Y_train, A, B, n_labels)
    try:
        return model.inverse_propensity(A, B, n_labels)
    except DataError as error:
        warn(f"PSP is left out: {error}; or pass --propensity to evaluate")
        return None


def baseline(train: Dataset, test: Dataset) -> dict[str, float]:
    """Return the metrics of predicting the most frequent labels for every row."""
    top = np.argsort(-train.Y.column_counts(), kind="stable")[:5]
    return evaluate_ranking(test.Y, np.tile(top, (test.n_rows, 1)), train.Y)


def examples(model: Model, test: Dataset, texts: Documents) -> list[str]:
    """Return two lines for each of some test rows: its words, and its best labels."""
    long = np.flatnonzero([len(text.split()) >= WORDS_SHOWN // 2 for text in texts.texts])
    shown = long[np.linspace(0, len(long) - 1, min(EXAMPLE_ROWS, len(long))).astype(int)]
    labels, _ = model.predict_topk(test.X.take(shown), k=5)
    lines: list[str] = []
    for row, best in zip(shown.tolist(), labels, strict=True):
        words, true = texts.texts[row].split(), set((texts.labels or [])[row])
        names: list[Any] = [str(model.classes_[label]) for label in best if label >= 0]
        lines.append(" ".join(words[:WORDS_SHOWN]) + (" ..." if len(words) > WORDS_SHOWN else ""))
        lines.append("    " + "  ".join(name + "*" * (name in true) for name in names))
    return lines
