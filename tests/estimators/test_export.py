"""Models as ONNX, whose answers in onnxruntime are compared with our own."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from xmlsgd import DataError, XMLClassifier, XMLEnsemble, make_xmc
from xmlsgd.cli import main
from xmlsgd.data.csr import CSR
from xmlsgd.devices.cpu import CPU
from xmlsgd.estimators import export
from xmlsgd.estimators.export import export_onnx
from xmlsgd.estimators.inference.scorer import Scorer
from xmlsgd.estimators.inputs import damped_values

SETTINGS = {"max_epochs": 2, "random_state": 0, "n_jobs": 1, "precision": "float32"}
TEXTS = ["read a file", "write a file", "open the socket", "close the socket"] * 10
LABELS = [text.split()[::2] for text in TEXTS]


@pytest.fixture(scope="module")
def rows():
    return make_xmc(300, 90, 30, nnz_per_row=8, labels_per_row=2)


@pytest.fixture(
    scope="module", params=[{"hidden_layer_sizes": (16,)}, {"hidden_layer_sizes": (24, 16), "loss": "softmax"}]
)
def network(request, rows):
    return XMLClassifier(candidates=0, **request.param, **SETTINGS).fit(rows.X, rows.Y)


@pytest.fixture(scope="module")
def with_candidates():
    return XMLClassifier((8,), candidates=4, **SETTINGS).fit(TEXTS, LABELS)


def padded(X):
    """Return features and values of rows, filled up to the longest; at least one entry."""
    shape = X.n_rows, max(1, int(np.diff(X.indptr).max()))
    features, values = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
    for i in range(X.n_rows):
        row, row_values = X.row(i)
        features[i, : len(row)], values[i, : len(row)] = row, row_values
    return features, values


def session(path):
    options = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed").SessionOptions()
    options.intra_op_num_threads = 1
    import onnxruntime

    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def ranked_by_onnx(path, X, k):
    features, values = padded(X)
    feed = {"features": features, "values": values, "k": np.array([k])}
    return session(path).run(["labels", "scores"], feed)


def test_onnxruntime_gives_our_labels_and_scores(network, rows, tmp_path):
    pytest.importorskip("onnx", reason="onnx is not installed")
    export_onnx(network, tmp_path / "m.onnx")
    labels, scores = ranked_by_onnx(tmp_path / "m.onnx", rows.X, 5)
    ours, our_scores = network.predict_topk(rows.X, 5)
    np.testing.assert_allclose(scores, our_scores, atol=1e-5)
    np.testing.assert_array_equal(labels, ours)
    every, all_scores = ranked_by_onnx(tmp_path / "m.onnx", rows.X, 30)
    logits = network.decision_function(rows.X)
    np.testing.assert_allclose(all_scores, np.take_along_axis(logits, every, axis=1), atol=1e-5)


def test_a_compact_model_and_a_row_without_features_have_the_same_scores_in_onnx(network, rows, tmp_path):
    pytest.importorskip("onnx", reason="onnx is not installed")
    network.save(tmp_path / "m", compact=True)
    compact = XMLClassifier.load(tmp_path / "m", precision="float32")
    export_onnx(compact, tmp_path / "m.onnx")
    X = rows.X[:1]
    X = type(X)(np.append(X.indptr, X.indptr[-1]), X.indices, X.data, X.n_cols)
    _, scores = ranked_by_onnx(tmp_path / "m.onnx", X, 5)
    np.testing.assert_allclose(scores, compact.predict_topk(X, 5)[1], atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*holds the network alone")
def test_the_network_of_a_model_with_candidates_gets_damped_values(rows, tmp_path):
    pytest.importorskip("onnx", reason="onnx is not installed")
    X = CSR(rows.X.indptr, rows.X.indices, np.where(rows.X.indices % 3, 2, -4 * rows.X.data), rows.X.n_cols)
    model = XMLClassifier((16,), candidates=8, **SETTINGS).fit(X, rows.Y)
    export_onnx(model, tmp_path / "m.onnx")
    labels, scores = ranked_by_onnx(tmp_path / "m.onnx", X, 5)
    scorer = Scorer(model.network_, model.params_, CPU(1, precision="float32"))
    ours, our_scores = scorer.top_k(damped_values(X), 5)
    np.testing.assert_allclose(scores, our_scores, atol=1e-5)
    np.testing.assert_array_equal(labels, ours)


def test_the_file_passes_the_checker_of_onnx_and_says_who_made_it(network, tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    export_onnx(network, tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert model.producer_name == "xmlsgd"
    names = {tensor.name for tensor in model.graph.initializer}
    assert names == {*network.network_.layout.shapes, "axis"}


def test_what_onnx_cannot_hold_is_told(network, with_candidates, rows, tmp_path, monkeypatch):
    pytest.importorskip("onnx", reason="onnx is not installed")
    with pytest.warns(UserWarning, match=r"m.onnx: holds the network alone; scores of this model also need neighbors"):
        export_onnx(with_candidates, tmp_path / "m.onnx")
    ensemble = XMLEnsemble(XMLClassifier((4,), candidates=0, **SETTINGS), 2).fit(rows.X, rows.Y)
    with pytest.raises(DataError, match="must be one classifier for ONNX, got an ensemble; export its estimators_"):
        export_onnx(ensemble, tmp_path / "m.onnx")
    monkeypatch.setattr(export, "MAX_ONNX_BYTES", 1 << 20)
    with pytest.raises(DataError, match="must have at most 2 GB of weights for ONNX"):
        export_onnx(network, tmp_path / "n.onnx")
    assert not (tmp_path / "n.onnx").exists()


def test_the_command_writes_the_network(with_candidates, tmp_path, capsys):
    pytest.importorskip("onnx", reason="onnx is not installed")
    with_candidates.save(tmp_path / "m")
    file = str(tmp_path / "m.onnx")
    assert main(["export", str(tmp_path / "m"), "--onnx", file]) == 0
    told = capsys.readouterr()
    assert told.out == f"{file}: 0.0 MB\n"
    assert "holds the network alone" in told.err
    assert (tmp_path / "m.onnx").stat().st_size > 0


def test_the_command_refuses_to_put_a_compact_model_on_the_model(with_candidates, tmp_path, capsys):
    with_candidates.save(tmp_path / "m")
    assert main(["export", str(tmp_path / "m"), "--compact", str(tmp_path / "m"), "--overwrite"]) == 2
    assert f"--compact {tmp_path / 'm'}: is an input of this command" in capsys.readouterr().err


def test_the_command_without_a_file_or_the_package_is_refused(with_candidates, tmp_path, capsys, monkeypatch):
    with_candidates.save(tmp_path / "m")
    assert main(["export", str(tmp_path / "m")]) == 2
    assert "must have --compact DIR or --onnx FILE, got neither" in capsys.readouterr().err

    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["export", str(tmp_path / "m"), "--onnx", str(tmp_path / "f")]) == 2
    assert 'onnx is missing: pip install "xmlsgd[onnx]"' in capsys.readouterr().err


def test_the_command_replaces_no_file_unasked(with_candidates, tmp_path, capsys):
    with_candidates.save(tmp_path / "m")
    data = tmp_path / "data.txt"
    data.write_text("kept")
    assert main(["export", str(tmp_path / "m"), "--onnx", str(data)]) == 2
    assert f"--onnx {data}: exists; --overwrite replaces it" in capsys.readouterr().err
    assert data.read_text() == "kept"
