"""Models on disk: what is saved comes back exactly, or is refused before anything is written."""

from __future__ import annotations

import pickle
from dataclasses import replace

import joblib
import numpy as np
import pytest
import scipy.sparse as sp

from shared.needs import missing_gpu
from shared.saved_models import same_answers, small, some_rows
from xmlsgd import DataError, ModelFileError, XMLClassifier
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.vectorizer import TextVectorizer
from xmlsgd.nn.optimizers import Adagrad, Adam, Optimizer
from xmlsgd.nn.optimizers.base import RATE


def test_a_loaded_model_answers_as_the_saved_one(rows, tmp_path):
    model = small(optimizer="row_rmsprop", hidden_layer_sizes=(16, 8)).fit(*rows, eval_set=rows)
    model.save(tmp_path / "model")
    loaded = XMLClassifier.load(tmp_path / "model")
    assert same_answers(model, loaded, rows[0])
    assert loaded.get_params() == model.get_params()
    assert loaded.history_ == model.history_
    assert loaded.classes_.dtype == model.classes_.dtype
    assert (loaded.predict(rows[0]) != model.predict(rows[0])).nnz == 0


def through_save(model, folder):
    model.save(folder / "model")
    return XMLClassifier.load(folder / "model")


def through_pickle(model, folder):
    return pickle.loads(pickle.dumps(model))


def through_joblib(model, folder):
    joblib.dump(model, folder / "model.joblib")
    return joblib.load(folder / "model.joblib", mmap_mode="r")


@pytest.mark.parametrize("copy", [through_save, through_pickle, through_joblib])
@pytest.mark.parametrize("optimizer", ["adam", "momentum", Adagrad(epsilon=1e-4)])
def test_partial_fit_goes_on_exactly_where_it_was(rows, tmp_path, copy, optimizer):
    model = small(optimizer=optimizer, hidden_dropout=0.1).fit(*rows)
    other = copy(model, tmp_path)
    for seed in (1, 2):
        more = some_rows(seed)
        model.partial_fit(*more)
        other.partial_fit(*more)
    assert model.params_.tobytes() == other.params_.tobytes()
    assert model.fitted_.optimizer.state.tobytes() == other.fitted_.optimizer.state.tobytes()
    assert model.fitted_.optimizer.updates == other.fitted_.optimizer.updates > 0


@pytest.mark.parametrize(
    "labels",
    [
        [["å", "b c"], ["a" * 300], [" ", "b c"]],
        [[3, 10**12], [-5], [3]],
        np.array(["x", "yy", "x"]),
        np.array([2.0, 1.0, 2.0]),
        np.array([True, False, True]),
        np.eye(3, dtype=int),
    ],
)
@pytest.mark.filterwarnings("ignore:.* begin or end with a space")
def test_names_of_labels_come_back(tmp_path, labels):
    model = small().fit(np.eye(3), labels)
    loaded = through_save(model, tmp_path)
    assert loaded.classes_.tolist() == model.classes_.tolist()
    assert loaded.classes_.dtype == model.classes_.dtype
    assert loaded.label_form_ == model.label_form_
    predicted = [m.predict(np.eye(3)) for m in (model, loaded)]
    dense = [p.toarray() if sp.issparse(p) else p for p in predicted]
    assert np.array_equal(*dense)


def test_feature_names_come_back(rows, tmp_path):
    model = small().fit(*rows)
    features = replace(model.fitted_.features, names=np.array([f"word {i}" for i in range(30)], dtype=object))
    model.fitted_ = replace(model.fitted_, features=features)
    model.save(tmp_path / "model")
    names = XMLClassifier.load(tmp_path / "model").feature_names_in_
    assert names.tolist() == model.feature_names_in_.tolist()
    assert names.dtype == object


def test_the_vectorizer_is_saved_with_the_model(tmp_path):
    texts, labels = ["red apple", "green apple", "red car", "green car"] * 5, [["a"], ["b"], ["c"], ["d"]] * 5
    model = small(vectorizer=TextVectorizer(min_df=5, max_features=9))
    model.fit(texts, labels).save(tmp_path / "model")
    loaded = XMLClassifier.load(tmp_path / "model")
    assert (loaded.vectorizer.min_df, loaded.vectorizer.max_features) == (5, 9)
    assert not loaded.vectorizer.is_fitted
    assert np.array_equal(loaded.predict_topk(["a red car"])[1], model.predict_topk(["a red car"])[1])


@pytest.mark.parametrize(
    "parameters",
    [
        {"optimizer": Adam(beta2=0.99, weight_decay=0.1)},
        {"algorithm": Sequential(batch=2, learning_rate=0.01)},
        {"class_weight": {0: 2.0, 1: 0.5}},
        {"class_weight": "balanced", "learning_rate_init": np.float64(0.01)},
        {"hidden_layer_sizes": [np.int64(16), 8]},
        {"random_state": None},
    ],
)
def test_parameters_come_back(tmp_path, parameters):
    model = small(**parameters).fit(np.eye(4), [0, 1, 0, 1])
    loaded = through_save(model, tmp_path)
    want = {**model.get_params(), "hidden_layer_sizes": tuple(model.hidden_layer_sizes)}
    assert loaded.get_params() == want


def test_a_generator_as_random_state_is_not_saved_but_its_draw_is(rows, tmp_path):
    model = small(random_state=np.random.RandomState(3)).fit(*rows)
    loaded = through_save(model, tmp_path)
    assert loaded.random_state is None
    assert np.array_equal(loaded.partial_fit(*rows).params_, model.partial_fit(*rows).params_)


def test_the_parameters_of_a_loaded_model_are_mapped_and_learning_leaves_the_file(saved, rows):
    loaded = XMLClassifier.load(saved)
    assert isinstance(loaded.params_, np.memmap)
    assert not loaded.params_.flags.writeable
    before = (saved / "params.npy").read_bytes()
    loaded.partial_fit(*rows)
    assert (saved / "params.npy").read_bytes() == before


def test_partial_fit_keeps_the_state_of_the_optimizer_for_the_next_and_save_does_not(rows, tmp_path):
    model = small().partial_fit(*rows)
    loaded = through_save(model, tmp_path)
    assert not list(tmp_path.rglob("*optimizer*"))
    first = model.fitted_.optimizer
    assert first.state.any()
    model.partial_fit(*rows)
    loaded.partial_fit(*rows)
    assert model.fitted_.optimizer.updates == 2 * first.updates
    assert loaded.fitted_.optimizer.updates == first.updates


def test_a_model_that_was_mapped_can_be_saved_over_itself(saved, rows):
    loaded = XMLClassifier.load(saved)
    before = loaded.predict_topk(rows[0])
    loaded.save(saved)
    assert np.array_equal(XMLClassifier.load(saved).predict_topk(rows[0])[1], before[1])


def test_a_pickle_carries_no_device(rows):
    model = small().fit(*rows)
    model.predict_topk(rows[0])
    assert pickle.loads(pickle.dumps(model)).fitted_._scorers == {}
    assert len(pickle.dumps(model)) < model.params_.nbytes + 4096


def test_nothing_in_a_saved_model_is_pickled(saved):
    assert {file.suffix for file in saved.iterdir()} == {".json", ".npy"}
    for file in saved.glob("*.npy"):
        assert np.load(file, allow_pickle=False).dtype.kind != "O"


def test_an_unfitted_model_cannot_be_saved(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        small().save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_an_optimizer_of_the_users_own_cannot_be_saved(rows, tmp_path):
    class Own(Optimizer):
        @staticmethod
        def step(g, s, t, h):
            return h[RATE] * g

    model = small(optimizer=Own(), learning_rate_init=0.1).fit(*rows)
    with pytest.raises(ModelFileError, match="only optimizers of this package can be saved"):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["elsewhere", "not JSON"])
def test_an_algorithm_that_could_not_be_loaded_is_not_saved(rows, tmp_path, kind):
    class Own(Sequential):
        pass

    model = small().fit(*rows)
    model.algorithm = Own() if kind == "elsewhere" else Sequential()
    model.algorithm.learning_rate = np.nan  # no algorithm can be made with it
    message = (
        "only algorithms of this package can be saved"
        if kind == "elsewhere"
        else "must be numbers, texts or rules of this package"
    )
    with pytest.raises(ModelFileError, match=message):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_parameter_that_could_not_be_loaded_is_not_saved(rows, tmp_path):
    model = small().fit(*rows).set_params(negatives=0)
    with pytest.raises(DataError, match="negatives: must be 'auto', 'all' or a positive integer, got 0"):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not missing_gpu(), reason="there is a GPU")
def test_a_model_of_a_gpu_loads_where_there_is_none_and_predicts_on_the_cpu(rows, tmp_path):
    X = rows[0]
    model = small().fit(*rows)
    expected = model.predict_topk(X, 3)[0]
    model.fitted_ = replace(model.fitted_, device="cuda:0")  # as trained there
    model.save(tmp_path / "model")
    loaded = XMLClassifier.load(tmp_path / "model")
    with pytest.raises(DataError, match=r"device 'cuda:0': .*use 'cpu', or"):
        loaded.predict_topk(X)
    loaded = XMLClassifier.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(loaded.predict_topk(X, 3)[0], expected)
