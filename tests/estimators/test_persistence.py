"""Models on disk: what is saved comes back exactly, what was altered is refused, what fails leaves nothing behind."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import tempfile
import threading

import joblib
import numpy as np
import pytest
import scipy.sparse as sp

from xmlsgd import ModelFileError, XMLClassifier, checkpoint
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.checkpoint import read_model, write_model
from xmlsgd.datasets.vectorizer import TextVectorizer
from xmlsgd.files import sha256_of, whole
from xmlsgd.optimizers import Adagrad, Adam, Optimizer
from xmlsgd.snapshot import Snapshot


def some_rows(seed=0):
    """Return X (90, 30) and Y (90, 12) that can be learned."""
    rng = np.random.default_rng(seed)
    Y = rng.uniform(size=(90, 12)) < 0.2
    X = np.hstack([Y * rng.uniform(0.5, 1, Y.shape), rng.uniform(size=(90, 18)) * 0.1]).astype(np.float32)
    return sp.csr_array(X), sp.csr_array(Y.astype(int))


def small(**parameters):
    """Return a quick classifier with a fixed seed."""
    return XMLClassifier(**{"hidden_layer_sizes": (16,), "max_epochs": 4, "random_state": 0, "n_jobs": 1, **parameters})


@pytest.fixture(scope="module")
def rows():
    return some_rows()


@pytest.fixture
def saved(rows, tmp_path):
    """Return the folder of a saved model."""
    small().fit(*rows).save(tmp_path / "model")
    return tmp_path / "model"


def same_answers(first, second, X):
    """Return whether two models agree in every bit."""
    return all(np.array_equal(a, b) for a, b in zip(first.predict_topk(X), second.predict_topk(X), strict=True))


# There and back


@pytest.mark.parametrize("predict_only", [True, False])
def test_a_loaded_model_answers_as_the_saved_one(rows, tmp_path, predict_only):
    model = small(optimizer="row_adagrad", hidden_layer_sizes=(16, 8)).fit(*rows, eval_set=rows)
    model.save(tmp_path / "model")
    loaded = XMLClassifier.load(tmp_path / "model", predict_only=predict_only)
    assert same_answers(model, loaded, rows[0])
    assert loaded.get_params() == model.get_params()
    assert loaded.history_ == model.history_
    assert loaded.classes_.dtype == model.classes_.dtype
    assert (loaded.predict(rows[0]) != model.predict(rows[0])).nnz == 0


def through_save(model, folder):
    model.save(folder / "model")
    return XMLClassifier.load(folder / "model", predict_only=False)


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
    assert model.optimizer_state_.tobytes() == other.optimizer_state_.tobytes()
    assert model.n_steps_ == other.n_steps_


@pytest.mark.parametrize(
    "labels",
    [
        [["å", "b c"], ["a" * 300], ["", "b c"]],
        [[3, 10**12], [-5], [3]],
        np.array(["x", "yy", "x"]),
        np.array([2.0, 1.0, 2.0]),
        np.array([True, False, True]),
        np.eye(3, dtype=int),
    ],
)
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
    model.feature_names_in_ = np.array([f"word {i}" for i in range(30)], dtype=object)
    model.save(tmp_path / "model")
    names = XMLClassifier.load(tmp_path / "model").feature_names_in_
    assert names.tolist() == model.feature_names_in_.tolist()
    assert names.dtype == object


def test_the_vectorizer_is_saved_with_the_model(tmp_path):
    texts, labels = ["red apple", "green apple", "red car", "green car"] * 5, [["a"], ["b"], ["c"], ["d"]] * 5
    model = small()
    model.vectorizer_ = TextVectorizer(min_df=1).fit(texts)
    model.fit(texts, labels).save(tmp_path / "model")
    loaded = XMLClassifier.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_topk(["a red car"])[1], model.predict_topk(["a red car"])[1])


@pytest.mark.parametrize(
    "parameters",
    [
        {"optimizer": Adam(beta2=0.99, weight_decay=0.1)},
        {"algorithm": Sequential(batch=2, rate=0.01)},
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


def test_predict_only_maps_the_parameters_and_refuses_to_learn(saved, rows):
    loaded = XMLClassifier.load(saved)
    assert not loaded.params_.flags.writeable
    assert isinstance(loaded.params_, np.memmap)
    with pytest.raises(ValueError, match=r"no optimizer state; load\(path, predict_only=False\) reads it"):
        loaded.partial_fit(*rows)


def test_a_model_saved_for_prediction_only_is_smaller_and_says_so(saved, rows, tmp_path):
    XMLClassifier.load(saved).save(tmp_path / "light", predict_only=True)
    assert not (tmp_path / "light" / "optimizer_state.npy").exists()
    assert same_answers(XMLClassifier.load(tmp_path / "light"), XMLClassifier.load(saved), rows[0])
    with pytest.raises(ModelFileError, match="holds no optimizer state"):
        XMLClassifier.load(tmp_path / "light", predict_only=False)


def test_a_model_that_was_mapped_can_be_saved_over_itself(saved, rows):
    loaded = XMLClassifier.load(saved)
    before = loaded.predict_topk(rows[0])
    loaded.save(saved)
    assert np.array_equal(XMLClassifier.load(saved).predict_topk(rows[0])[1], before[1])


def test_a_pickle_carries_no_device(rows):
    model = small().fit(*rows)
    model.predict_topk(rows[0])
    assert pickle.loads(pickle.dumps(model))._scorers == {}
    assert len(pickle.dumps(model)) < 2 * (model.params_.nbytes + model.optimizer_state_.nbytes)


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
        pass

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
    model.algorithm.rate = np.inf  # no algorithm can be made with it
    message = "only algorithms of this package can be saved" if kind == "elsewhere" else "must be numbers or texts"
    with pytest.raises(ModelFileError, match=message):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


# Writing


def test_saving_replaces_an_earlier_model(rows, saved):
    X, Y = rows
    other = small(random_state=1).fit(X, Y)
    other.save(saved)
    assert same_answers(XMLClassifier.load(saved), other, X)
    assert [file.name for file in saved.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_saving_does_not_replace_what_is_no_model(rows, tmp_path, kind):
    place = tmp_path / "precious"
    if kind == "file":
        place.write_text("text")
    else:
        place.mkdir()
        (place / "thesis.txt").write_text("text")
    with pytest.raises(ModelFileError, match="exists and is not a saved model"):
        small().fit(*rows).save(place)
    assert (place if kind == "file" else place / "thesis.txt").read_text() == "text"
    assert list(tmp_path.iterdir()) == [place]


def failing(monkeypatch, owner, name, at):
    """Make the `at`-th call of a function fail as on a full disk; return the list of calls."""
    original, calls = getattr(owner, name), []

    def call(*args, **kwargs):
        calls.append(args)
        if len(calls) == at:
            raise OSError(28, "No space left on device")
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)
    return calls


@pytest.mark.parametrize(
    ("owner", "name", "at"),
    [
        *[(checkpoint, name, at) for name in ("_write_array", "sha256_of") for at in (1, 2, 3)],
        *[(os, "fsync", at) for at in (1, 2, 3)],
        (whole, "_put_in_place", 1),
    ],
)
def test_a_save_that_fails_leaves_the_earlier_model_and_names_it(rows, saved, monkeypatch, owner, name, at):
    before = XMLClassifier.load(saved).predict_topk(rows[0])
    other = small(random_state=1).fit(*rows)
    with monkeypatch.context() as patch:
        failing(patch, owner, name, at)
        with pytest.raises(OSError, match="No space") as caught:
            other.save(saved)
    assert saved.name in caught.value.filename
    assert np.array_equal(XMLClassifier.load(saved).predict_topk(rows[0])[1], before[1])
    assert [file.name for file in saved.parent.iterdir()] == ["model"]


def test_two_who_save_and_one_who_loads_meet_no_error_and_no_mixture(rows, saved):
    X, Y = rows
    models = [small(random_state=seed).fit(X, Y) for seed in range(2)]
    errors = []

    def save_often(model):
        try:
            for _ in range(10):
                model.save(saved)
        except Exception as error:  # noqa: BLE001 (whatever it is, the test shows it)
            errors.append(error)

    savers = [threading.Thread(target=save_often, args=(model,)) for model in models]
    for saver in savers:
        saver.start()
    for turn in range(20):  # without checksums a mixture would go unnoticed
        loaded = XMLClassifier.load(saved, predict_only=False, verify=turn % 2)
        (seed,) = [seed for seed, model in enumerate(models) if np.array_equal(loaded.params_, model.params_)]
        assert np.array_equal(loaded.optimizer_state_, models[seed].optimizer_state_)
        assert loaded.random_state == seed
    for saver in savers:
        saver.join()
    assert errors == []
    assert [file.name for file in saved.parent.iterdir()] == ["model"]


def test_a_model_is_not_saved_in_the_place_of_the_current_folder(rows, tmp_path, monkeypatch):
    model = small().fit(*rows)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelFileError, match="is the current folder and cannot be replaced; name a folder in it"):
        model.save(".")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [float("nan"), object(), b"bytes"])
def test_a_history_that_is_no_json_is_refused_before_anything_is_written(rows, tmp_path, value):
    model = small().fit(*rows)
    model.history_[-1]["own"] = value
    with pytest.raises(ModelFileError, match="parameters and history must be finite numbers or texts"):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_snapshot_gives_back_what_it_kept():
    snapshot, flat = Snapshot(), np.arange(10, dtype=np.float32)
    snapshot.keep(flat)
    snapshot.keep(2 * flat)
    flat[:] = np.nan
    snapshot.restore(flat)
    snapshot.close()
    assert np.array_equal(flat, 2 * np.arange(10))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_a_snapshot_names_the_folder_of_the_disk_that_is_full(monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda prefix: open("/dev/full", "w+b"))  # noqa: SIM115
    snapshot = Snapshot()
    with pytest.raises(OSError, match="No space") as caught:
        snapshot.keep(np.ones(10_000, np.float32))
    snapshot.close()
    assert caught.value.filename == tempfile.gettempdir()


# Reading what was altered


@pytest.mark.parametrize("name", ["MANIFEST.json", "model.json", "params.npy", "classes.npy", "optimizer_state.npy"])
def test_a_missing_file_is_named(saved, name):
    (saved / name).unlink()
    with pytest.raises(ModelFileError, match=name):
        XMLClassifier.load(saved)


@pytest.mark.parametrize("name", ["MANIFEST.json", "model.json", "params.npy", "classes.npy", "optimizer_state.npy"])
def test_a_file_cut_anywhere_or_with_a_flipped_bit_is_refused(saved, name):
    good = (saved / name).read_bytes()
    rng = np.random.default_rng(0)
    for at in {0, 1, len(good) // 2, len(good) - 2, *rng.integers(0, len(good), 20).tolist()}:
        flipped = good[:at] + bytes([good[at] ^ (1 << int(rng.integers(8)))]) + good[at + 1 :]
        for bad in (good[:at], flipped):
            (saved / name).write_bytes(bad)
            try:
                XMLClassifier.load(saved)
            except ModelFileError:
                continue
            # Only the manifest is without a checksum: blanks and line ends in it may change.
            assert name == "MANIFEST.json"
            assert json.loads(bad) == json.loads(good)


def rewrite(folder, change=None, arrays=None):
    """Write the model anew with a changed description and arrays, and with right checksums."""
    description, old = read_model(folder)
    old = {name: np.array(array) for name, array in old.items()}
    write_model(folder, {**description, **(change or {})}, {**old, **(arrays or {})})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"estimator": "Ridge"}, "must hold an XMLClassifier, got 'Ridge'"),
        ({"label_form": "poem"}, "label_form must be one of"),
        ({"network": None}, "network must have the fields"),
        ({"optimizer_kind": 77}, "unknown optimizer_kind, got 77"),
        ({"steps": True}, "steps must be a number"),
        ({"history": [1]}, "history must be a list of records"),
        ({"parameters": {"os.system": "true"}}, "parameters must be among those of XMLClassifier"),
        ({"parameters": {"loss": "mse"}}, "loss must be one of"),
        ({"parameters": {"hidden_layer_sizes": "16"}}, "hidden_layer_sizes: must be"),
        ({"parameters": {"optimizer": {"name": "os.system", "numbers": {}}}}, "unknown optimizer"),
        ({"parameters": {"class_weight": [1, 2]}}, "class_weight must be pairs"),
        *[
            ({"parameters": {"algorithm": algorithm}}, "unknown algorithm, got")
            for algorithm in (
                {},
                {"module": "os", "class": "system", "numbers": {}},
                {"module": "base", "class": "Algorithm", "numbers": {}},
                {"module": "sequential", "class": "dataclass", "numbers": {}},
                {"module": "sequential", "class": "Algorithm", "numbers": {}},
                {"module": "sequential", "class": "Sequential", "numbers": {"speed": 1}},
                {"module": "sequential", "class": "Sequential", "numbers": 3},
                {"module": ["sequential"], "class": "Sequential", "numbers": {}},
            )
        ],
        ({"history": [{"loss": "low"}]}, "history must be a list of records"),
        ({"parameters": 3}, "parameters must be among"),
        ({"vectorizer": True}, r"vectorizer.json: is missing or no regular file"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(saved, change, message):
    rewrite(saved, change)
    with pytest.raises(ModelFileError, match=message):
        XMLClassifier.load(saved, predict_only=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_features": -1}, "n_features must be a number of at least 0, got -1"),
        ({"n_features": 10**9}, "params must be float32"),
        ({"n_features": "30"}, "n_features must be a number"),
        ({"n_features": 31}, "params must be float32"),
        ({"n_labels": 13}, "must name 13 labels, got 12"),
        ({"hidden": []}, "hidden must be a list of positive integers"),
        ({"hidden": [16, 16]}, "params must be float32"),
        ({"hidden": "16"}, "hidden must be a list"),
        ({"loss": "mse"}, "loss must be one of"),
        ({"loss": []}, "loss must be one of"),
        ({"hidden_dropout": 1.5}, r"hidden_dropout must be in \[0, 1\), got 1.5"),
        ({"input_scale": None}, "input_scale must be a number"),
        ({"depth": 3}, "network must have the fields"),
    ],
)
def test_a_network_that_does_not_fit_is_refused(saved, change, message):
    rewrite(saved, {"network": {**read_model(saved)[0]["network"], **change}})
    with pytest.raises(ModelFileError, match=message):
        XMLClassifier.load(saved)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"params": np.zeros(3, np.float32)}, r"params must be float32 \(\d+,\), got float32 \(3,\)"),
        ({"params": np.zeros((2, 2))}, r"got float64 \(2, 2\)"),
        ({"optimizer_state": np.zeros(3, np.float32)}, "optimizer_state must be float32"),
        ({"classes": np.zeros((12, 1))}, "classes must be a list of numbers"),
        ({"classes": np.arange(13)}, "must name 12 labels, got 13"),
        ({"classes": np.array(["a"] * 12)}, "classes must be a list of numbers, got <U1"),
    ],
)
def test_an_array_that_does_not_fit_is_refused(saved, arrays, message):
    rewrite(saved, arrays=arrays)
    with pytest.raises(ModelFileError, match=message):
        XMLClassifier.load(saved, predict_only=False)


def test_parameters_that_are_not_finite_are_refused(saved):
    params = np.array(read_model(saved)[1]["params"])
    params[5] = np.nan
    rewrite(saved, arrays={"params": params})
    with pytest.raises(ModelFileError, match="params must be finite"):
        XMLClassifier.load(saved)


@pytest.mark.parametrize(
    ("ends", "text", "message"),
    [
        ([1, 3, 2], b"abcd", "classes_ends must rise to the 4 bytes"),
        ([1, 2, 3], b"abcd", "classes_ends must rise to the 4 bytes"),
        ([1, 2, 3], b"ab\xff", "classes must be UTF-8"),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path, ends, text, message):
    small().fit(np.eye(3), [["a"], ["b"], ["c"]]).save(tmp_path / "model")
    arrays = {"classes_ends": np.array(ends), "classes_text": np.frombuffer(text, np.uint8)}
    rewrite(tmp_path / "model", arrays=arrays)
    with pytest.raises(ModelFileError, match=message):
        XMLClassifier.load(tmp_path / "model")


def edit_manifest(folder, edit):
    """Change the manifest in place."""
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    edit(manifest)
    (folder / "MANIFEST.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda m: m.update(version=99), "format must be xmlsgd-model version 1, got"),
        (lambda m: m.update(format="zip"), "format must be xmlsgd-model"),
        (lambda m: m.pop("files"), "must list the files"),
        (
            lambda m: m["files"].update({"../../etc/passwd.json": {}}),
            "may name only .npy and .json files, got",
        ),
        (lambda m: m["files"].update({"run.py": {}}), "may name only"),
        (lambda m: m["files"].update({"model.json": 3}), "may name only"),
        (lambda m: m["files"]["params.npy"].update(bytes=7), "params.npy: must have 7 bytes"),
        (lambda m: m["files"]["params.npy"].update(sha256="0"), "params.npy: its checksum differs"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(saved, edit, message):
    edit_manifest(saved, edit)
    with pytest.raises(ModelFileError, match=message):
        XMLClassifier.load(saved)


def test_a_link_in_the_place_of_an_array_is_refused(saved, tmp_path):
    (saved / "params.npy").rename(tmp_path / "params.npy")
    (saved / "params.npy").symlink_to(tmp_path / "params.npy")
    with pytest.raises(ModelFileError, match="is missing or no regular file"):
        XMLClassifier.load(saved)


@pytest.mark.parametrize("name", ["MANIFEST.json", "model.json"])
def test_a_link_in_the_place_of_a_description_is_refused(saved, tmp_path, name):
    (saved / name).rename(tmp_path / name)
    (saved / name).symlink_to(tmp_path / name)
    with pytest.raises(ModelFileError, match=f"{name}: is missing or no regular file"):
        XMLClassifier.load(saved)


@pytest.mark.parametrize("name", ["MANIFEST.json", "model.json"])
@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"", b"\xff", b"1" * 10_000, b"null"])
def test_what_is_no_json_object_is_refused(saved, name, text):
    (saved / name).write_bytes(text)
    if name == "model.json":
        entry = {"bytes": len(text), "sha256": sha256_of(saved / name)}
        edit_manifest(saved, lambda m: m["files"].update({name: entry}))
    with pytest.raises(ModelFileError, match=f"{name}: must be a JSON object"):
        XMLClassifier.load(saved)


def test_an_array_of_objects_is_refused_unread(saved):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    buffer = io.BytesIO()
    np.save(buffer, np.array([Trap()], dtype=object), allow_pickle=True)
    (saved / "params.npy").write_bytes(buffer.getvalue())
    digest = sha256_of(saved / "params.npy")
    edit_manifest(
        saved, lambda m: m["files"].update({"params.npy": {"bytes": len(buffer.getvalue()), "sha256": digest}})
    )
    with pytest.raises(ModelFileError, match="must be a plain array"):
        XMLClassifier.load(saved)


LACKING = [(OSError(errno.EMFILE, "Too many open files"), ModelFileError), (MemoryError("too large"), MemoryError)]


@pytest.mark.parametrize(("error", "kind"), LACKING, ids=["files", "memory"])
def test_what_the_machine_lacks_is_not_said_to_be_wrong_with_a_file(saved, monkeypatch, error, kind):
    def lacking(*given, **options):
        raise error

    monkeypatch.setattr(np, "load", lacking)
    with pytest.raises(kind, match=r"cannot be read, got Too many open files$|^too large$"):
        XMLClassifier.load(saved)


@pytest.mark.parametrize("what", ["nothing", "file", "empty folder"])
def test_a_place_without_a_model_is_refused(tmp_path, what):
    place = tmp_path / "place"
    if what == "file":
        place.write_text("{}")
    elif what == "empty folder":
        place.mkdir()
    with pytest.raises(ModelFileError, match="place"):
        XMLClassifier.load(place)


def test_without_verification_sizes_are_checked_still(saved):
    with (saved / "params.npy").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(ModelFileError, match=r"params.npy: must have \d+ bytes"):
        XMLClassifier.load(saved, verify=False)
