"""Train on texts and lists of tags; predict the five best tags of new texts.

python examples/text_to_tags.py
"""

from __future__ import annotations

from pathlib import Path

from xmlsgd import XMLClassifier
from xmlsgd.data.text import read_raw_text

DATA = Path(__file__).parents[1] / "data"


def main() -> None:
    train = read_raw_text(DATA / "train_raw.txt", labelled=True)  # lines `tag1,tag2<TAB>text`
    assert train.labels is not None

    model = XMLClassifier(hidden_layer_sizes=(64,), random_state=0)
    model.fit(train.texts, train.labels)  # the vocabulary is learned and saved with the model

    texts = ["read a json file and decode it", "close the socket of the connection", "parse an xml element"]
    labels, probabilities = model.predict_topk(texts, k=5, proba=True)
    for text, row, of_row in zip(texts, labels, probabilities, strict=True):
        tags = (f"{model.classes_[label]} ({chance:.2f})" for label, chance in zip(row, of_row, strict=True))
        print(f"{text}\n    {', '.join(tags)}")


if __name__ == "__main__":
    main()
