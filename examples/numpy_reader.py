"""Predict with a compact model by NumPy alone: no Numba, no SciPy, no xmlsgd. docs/model_folder.md describes the files.

python examples/numpy_reader.py MODEL [K] < texts.txt

MODEL is what `model.save("MODEL", compact=True)` or `xmlsgd train --compact` wrote: one classifier, not an ensemble.
Each line gets its K best labels and their scores, those of `predict_topk`. Files are not checked.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

MARKS = "".join(
    chr(i) for i in range(0x300, 0x12000) if unicodedata.category(chr(i)) in ("Mn", "Mc") and i >> 4 != 0xFE0
)
WORD = re.compile(rf"\w[+#]+|\w[\w{MARKS}]*")
NEIGHBORS, MOST_POSTINGS, MORE_LABELS, SHRINKAGE = 64, 4096, 64, np.float32(2)
LEAST_VOTE, LEAST_COOCCURRENCE = np.float32(1e-2), np.float32(1e-5)
SCORED = 40  # candidates that get margins, at least


class Model:
    """A model's arrays `a`, those of its candidates `c`, and what model.json says."""

    def __init__(self, folder: str | Path) -> None:
        self.about = json.loads(Path(folder, "model.json").read_text(encoding="utf-8"))
        if self.about["estimator"] != "XMLClassifier" or not self.about["compact"]:
            raise SystemExit(f"{folder}: must be one classifier, saved with compact=True")
        if self.about["dense"]:
            raise SystemExit(f"{folder}: has landmarks of dense features, which this reader does not know")
        self.a = {file.stem: np.load(file, mmap_mode="r") for file in Path(folder).glob("*.npy")}
        self.c = {name[11:]: array for name, array in self.a.items() if name.startswith("candidates_")}

    def names(self) -> list[str]:
        """Return the names of the labels."""
        if "classes" in self.a:
            return [str(name) for name in self.a["classes"]]
        text, ends = self.a["classes_text"].tobytes(), self.a["classes_ends"].tolist()
        return [text[start:end].decode() for start, end in zip([0, *ends], ends, strict=False)]

    def top_k(self, features: np.ndarray, values: np.ndarray, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns of the k best labels of a row, given its features and their values, and their scores."""
        if self.about["damped"]:
            values = np.copysign(np.abs(values) ** np.float32(0.75), values)
        logits, about = self.logits(features, values), self.about["candidates"]
        if about is None:
            return ranked(np.arange(len(logits)), logits, k)
        scaled = unit(values * self.c["scale"][features])
        labels, votes = self.votes(features, scaled)
        labels, shares = self.cooccurrence(features, scaled, labels)
        votes = np.pad(votes, (0, len(labels) - len(votes)))
        first = stacked(about["selection"], logits[labels], votes, np.zeros_like(votes), shares)
        best = np.argsort(-first, kind="stable")[: max(SCORED, self.n_voted // 2, 2 * k)]
        labels, votes, shares = labels[best], votes[best], shares[best]
        inputs = logits[labels], votes, self.margins(features, unit(values), labels), shares
        scores = stacked(about["stacking"], *inputs)
        if about["trees"]:
            scores += self.trees(*inputs, self.c["frequency"][labels])
        if about["exclusion"]:
            scores += np.float32(about["exclusion"]) * self.exclusions(labels, scores)
        if k > min(len(labels), (self.n_voted + MORE_LABELS) // 2):  # the network ranks the rest
            rest = np.setdiff1d(np.arange(len(logits)), labels)
            network, intercept = np.float32(about["non_candidates"])
            labels = np.concatenate([labels, rest])
            scores = np.concatenate([scores, intercept - network * np.logaddexp(np.float32(0), -logits[rest])])
        return ranked(labels, scores, k)

    def logits(self, features: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the network's logits of all labels."""
        a = self.a
        z = a["b0"] + (values * a["W0_scales"][features]) @ a["W0_int8"][features]
        for i in range(1, len(self.about["network"]["hidden"]) + 1):
            z = a[f"b{i}"] + a[f"W{i}_scales"] * (a[f"W{i}_int8"] @ np.maximum(z, 0))
        return z

    @property
    def n_voted(self) -> int:
        """Return how many candidates the nearest rows propose."""
        size: int = self.about["candidates"]["size"]
        return min(size, max(64, size // 2))

    def votes(self, features: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the labels with the most votes of the nearest training rows, and the share of the votes of each."""
        c = self.c
        order = np.argsort(np.diff(c["postings_indptr"])[features], kind="stable")  # the shortest lists
        places, n_each = entries(c["postings_indptr"], features[order])
        n_read = int(n_each[np.cumsum(n_each) <= MOST_POSTINGS].sum())
        values = values[order] * c["postings_scales"][features[order]]
        products = np.repeat(values, n_each)[:n_read] * c["postings_int8"][places[:n_read]]
        rows, cosines = largest(*sums(c["postings_indices"][places[:n_read]], products), NEIGHBORS)
        powers = c["weight"][rows] * cosines * cosines
        places, n_each = entries(c["labels_indptr"], rows)
        labels, shares = sums(c["labels_indices"][places], np.repeat(powers, n_each))
        return largest(labels, shares / (total_of(powers) or 1), self.n_voted)

    def cooccurrence(self, features: np.ndarray, values: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return labels and others, which occur most with the features of the row, and the mean share of each."""
        c, sizes = self.c, np.abs(values)
        totals = c["cooccurrence_totals"][features]
        factors = sizes * totals / (totals + SHRINKAGE) * c["cooccurrence_scales"][features]
        places, n_each = entries(c["cooccurrence_indptr"], features)
        shares = np.repeat(factors, n_each) * c["cooccurrence_int8"][places]
        found, means = sums(c["cooccurrence_indices"][places], shares)
        means /= total_of(sizes) or 1
        of_label, is_new = dict(zip(found.tolist(), means, strict=True)), ~np.isin(found, labels)
        others, of_others = largest(found[is_new], means[is_new], MORE_LABELS)
        given = np.float32([of_label.get(label, 0) for label in labels.tolist()])
        return np.concatenate([labels, others]), np.concatenate([given, of_others])

    def margins(self, features: np.ndarray, values: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return bias + weights . values of the linear classifier of each label; keys are features + 1, or 0."""
        c, x = self.c, np.zeros(self.about["network"]["n_features"] + 1, np.float32)
        x[features + 1] = values
        if len(c["linear_keys"]):
            tables = [slice(*(8 * c["linear_buckets"][label : label + 2])) for label in labels]
            products = np.float32([c["linear_int8"][table] @ x[c["linear_keys"][table]] for table in tables])
        else:
            products = c["linear_int8"].reshape(-1, len(x) - 1)[labels] @ x[1:]
        return c["bias"][labels] + c["linear_scales"][labels] * products

    def trees(self, *inputs: np.ndarray) -> np.ndarray:
        """Return the sum of all trees; node j leads to 2 j + 1, or to 2 j + 2 if its input exceeds its threshold."""
        known, total = np.float32(inputs), np.zeros(len(inputs[0]), np.float32)
        shapes = {"feature": 15, "threshold": 15, "value": 16}
        arrays = [self.c[f"trees_{name}"].reshape(-1, size) for name, size in shapes.items()]
        for feature, threshold, value in zip(*arrays, strict=True):
            node = np.zeros(len(total), int)
            for _ in range(4):
                node = 2 * node + 1 + (known[feature[node], np.arange(len(node))] > threshold[node])
            total += value[node - 15]
        return total

    def exclusions(self, labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Return the log of what is left of the probability of each label beside a more probable one."""
        in_table = np.flatnonzero(np.isin(labels, self.c["exclusion_labels"]))
        place, out = np.searchsorted(self.c["exclusion_labels"], labels[in_table]), np.zeros(len(labels), np.float32)
        table = self.c["exclusion_table"][place][:, place] * np.float32(1 / 256)
        excludes = (in_table < max(SCORED, self.n_voted // 2)) & (scores[in_table] > np.log(1 / 19))
        probability = np.where(excludes, 1 / (1 + np.exp(-scores[in_table])), 0)
        table *= scores[in_table][:, None] > scores[in_table]
        out[in_table] = np.log(1 - (probability[:, None] * table).max(axis=0, initial=0))
        return out


def stacked(
    weights: list[float], logits: np.ndarray, votes: np.ndarray, margins: np.ndarray, shares: np.ndarray
) -> np.ndarray:
    """Return the log odds of labels by a regression with these weights."""
    network, neighbors, linear, weight, intercept = np.float32(weights)
    logs = np.log(np.maximum(votes, LEAST_VOTE)), np.log(np.maximum(shares, LEAST_COOCCURRENCE))
    score: np.ndarray = neighbors * logs[0] + linear * margins + weight * logs[1] + intercept
    return score - network * np.logaddexp(np.float32(0), -logits)


def rows_of(folder: str | Path, texts: list[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the features of each text, ascending, and their values: (1 + ln tf) idf or tf idf, of norm 1."""
    saved = json.loads(Path(folder, "vectorizer.json").read_text(encoding="utf-8"))
    column, idf, rows = {word: i for i, word in enumerate(saved["words"])}, np.float32(saved["idf"]), []
    for text in texts:
        words = ngrams(unicodedata.normalize("NFC", text.lower()), saved["options"])
        counts = Counter(column[word] for word in words if word in column)
        features = np.array(sorted(counts), np.int64)
        tf = np.float32([counts[f] for f in features])
        rows.append((features, unit((1 + np.log(tf) if saved["options"]["sublinear_tf"] else tf) * idf[features])))
    return rows


def ngrams(text: str, options: dict[str, Any]) -> Iterator[str]:
    """Yield n-grams of words, or of the characters of a word and a space on each side; of a short word all of these."""
    sizes = range(options["ngram_range"][0], options["ngram_range"][1] + 1)
    if options["analyzer"] == "word":
        left_out = set(WORD.findall(" ".join(options["stop_words"] or []).lower()))
        words = [word for word in WORD.findall(text.replace("_", " ")) if word not in left_out]
        yield from (" ".join(words[i : i + n]) for n in sizes for i in range(len(words) - n + 1))
    for word in text.split() if options["analyzer"] == "char_wb" else []:
        longest = min(sizes[-1], max(sizes[0], len(word) + 2))
        for n in range(sizes[0], longest + 1):
            yield from (f" {word} "[i : i + n] for i in range(max(1, len(word) + 3 - n)))


def unit(values: np.ndarray) -> np.ndarray:
    """Return values with norm 1."""
    return np.float32(values / (np.linalg.norm(values) or 1))


def entries(indptr: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where the entries of rows are, from indptr[row] to indptr[row + 1], and how many each row has."""
    spans = [np.arange(*indptr[row : row + 2]) for row in rows]
    return np.concatenate([np.empty(0, np.int64), *spans]), np.array([len(span) for span in spans], np.int64)


def total_of(values: np.ndarray) -> np.float32:
    """Return the sum, one value after the other."""
    return np.float32(np.cumsum(values)[-1] if len(values) else 0)


def sums(items: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different items, in the order in which they come first, and the sum of the values of each."""
    found, first, place = np.unique(items.astype(np.int64), return_index=True, return_inverse=True)
    total, order = np.zeros(len(found), np.float32), np.argsort(first)
    np.add.at(total, place, values)
    return found[order], total[order]


def largest(items: np.ndarray, values: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the n items with the largest values, and these, in the order given; of equals the first ones stay."""
    items, values = items[values > 0], values[values > 0]
    kept = np.sort(np.argsort(-values, kind="stable")[:n])
    return items[kept], values[kept]


def ranked(labels: np.ndarray, scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k best labels and their scores; of equals the smaller label is first."""
    order = np.lexsort((labels, -scores))[:k]
    return labels[order], scores[order]


def main() -> None:
    if len(sys.argv) < 2:
        print(__doc__)
        return
    model, k = Model(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    names = model.names()
    for row in rows_of(sys.argv[1], sys.stdin.read().splitlines()):
        print("\t".join(f"{names[label]}:{score:.6g}" for label, score in zip(*model.top_k(*row, k), strict=True)))


if __name__ == "__main__":
    main()
