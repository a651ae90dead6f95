"""Train on XMC files, evaluate, save the model and load it again.

python examples/xmc_files.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from xmlsgd import XMLClassifier, evaluate_ranking, load_dataset

DATA = Path(__file__).parents[1] / "data"


def main() -> None:
    train, test = load_dataset(DATA)  # train.txt, test.txt, labels.txt
    assert test is not None
    model = XMLClassifier(hidden_layer_sizes=(64,), random_state=0)
    print("bytes needed for training:", f"{model.estimate_memory(train.X, train.Y)['total']:,}")
    model.fit(train.X, train.Y, eval_set=(test.X, test.Y), label_names=train.label_names)

    labels, _ = model.predict_topk(test.X, k=5)
    for name, percent in evaluate_ranking(test.Y, labels, train.Y).items():
        print(f"{name:>7} {percent:6.2f}")

    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "model"))
        again = XMLClassifier.load(Path(folder, "model"))
        best, scores = again.predict_topk(test.X, k=3)
    first = zip(again.classes_[best[0]], scores[0], strict=True)
    print("first test row:", *(f"{name} ({score:.2f})" for name, score in first))


if __name__ == "__main__":
    main()
