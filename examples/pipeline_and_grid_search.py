"""Use the classifier in a scikit-learn pipeline and tune it by cross-validation.

python examples/pipeline_and_grid_search.py
"""

from __future__ import annotations

from pathlib import Path

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer

from xmlsgd import XMLClassifier
from xmlsgd.data.text import read_raw_text

DATA = Path(__file__).parents[1] / "data"


def main() -> None:
    train, test = (read_raw_text(DATA / f"{part}_raw.txt", labelled=True) for part in ("train", "test"))
    assert train.labels is not None
    assert test.labels is not None
    binarizer = MultiLabelBinarizer(sparse_output=True).fit(train.labels + test.labels)

    pipeline = make_pipeline(
        TfidfVectorizer(sublinear_tf=True, min_df=2),
        XMLClassifier(hidden_layer_sizes=(64,), max_epochs=8, random_state=0),
    )
    grid = {"xmlclassifier__learning_rate_init": [2e-3, 8e-3], "xmlclassifier__loss": ["bce", "softmax"]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(train.texts, binarizer.transform(train.labels))  # scored by P@1

    for parameters, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
        print(f"P@1 {100 * score:5.2f}  {parameters}")
    print(f"test P@1 {100 * search.score(test.texts, binarizer.transform(test.labels)):.2f} with the best parameters")


if __name__ == "__main__":
    main()
