"""The benchmark of thresholds: micro F1 at the learned one and at all others."""

from __future__ import annotations

import json

import pytest
from sklearn.metrics import f1_score

from benchmarks import learning_on, thresholds
from xmlsgd import XMLClassifier
from xmlsgd.data.formats.libsvm import write_libsvm
from xmlsgd.data.synthetic import make_xmc, split_rows
from xmlsgd.errors import DataError


def test_the_learned_threshold_is_compared_with_the_best_of_the_test_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(thresholds, "THREADS", 1)  # of so few rows two threads would only wait for each other
    train, test = split_rows(make_xmc(800, 120, 30, nnz_per_row=8, labels_per_row=2), 0.25)
    for name, part in (("train", train), ("test", test)):
        write_libsvm(part, tmp_path / f"{name}.txt")
    thresholds.main(["--data", str(tmp_path), "--seeds", "1", "--out", str(tmp_path)])
    ((found,),) = json.loads((tmp_path / "thresholds.json").read_text())["result"].values()
    model = XMLClassifier(n_jobs=thresholds.THREADS, random_state=0).fit(train.X, train.Y)
    for name, threshold in (("learned", "micro"), ("at 0.5", 0.5), ("best", found["best threshold"])):
        expected = f1_score(
            test.Y.to_scipy().toarray() != 0, model.predict(test.X, threshold).toarray(), average="micro"
        )
        assert found[name] == pytest.approx(100 * expected)
    assert found["best"] >= max(found["learned"], found["at 0.5"])


@pytest.mark.parametrize("benchmark", [learning_on, thresholds])
def test_a_data_set_without_a_test_part_is_refused(benchmark, tmp_path):
    write_libsvm(make_xmc(20, 12, 3, nnz_per_row=4, labels_per_row=1), tmp_path / "train.txt")
    with pytest.raises(DataError, match="must have a test split"):
        benchmark.main(["--data", str(tmp_path), "--out", str(tmp_path)])
