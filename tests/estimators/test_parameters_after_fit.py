"""What a fitted model answers is decided by `fit`: no parameter that is set later changes it."""

from __future__ import annotations

import copy
import inspect

import numpy as np
import pytest

from shared.planted import small
from shared.saved_models import rewrite
from xmlsgd import DataError, ModelFileError, XMLClassifier, XMLEnsemble, load_model
from xmlsgd.data.vectorizer import TextVectorizer
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.cpu.intrinsics import bf16
from xmlsgd.estimators.workers import usable_precision

# A value for each parameter that differs from what the models below were trained with.
OTHERS = {
    "hidden_layer_sizes": (8, 8),
    "loss": "softmax",
    "optimizer": "sgd",
    "learning_rate_init": 0.5,
    "learning_rate": "constant",
    "warm_up": 0.5,
    "batch_size": 7,
    "sampler": "uniform",
    "negatives": 3,
    "gradient_rounding": 0.5,
    "candidates": 5,
    "max_epochs": 77,
    "weight_decay": 0.1,
    "clip_norm": 1.0,
    "hidden_dropout": 0.5,
    "early_stopping": True,
    "validation_fraction": 0.3,
    "n_epochs_no_change": 1,
    "tol": 0.5,
    "class_weight": "balanced",
    "algorithm": "synchronous",
    "vectorizer": TextVectorizer(min_df=3),
    "devices": "cuda:0",
    "precision": "bfloat16",
    "n_jobs": 2,
    "warm_start": True,
    "random_state": 99,
    "verbose": 1,
}
OTHERS_OF_ENSEMBLE = {"estimator": XMLClassifier((4,), loss="softmax"), "n_estimators": 9, "random_state": 99}
KINDS = ("network", "candidates", "ensemble", "loaded", "loaded ensemble", "loaded compact")


@pytest.fixture(scope="module")
def models(rows, tmp_path_factory):
    """Return a fitted model of each kind."""
    folder = tmp_path_factory.mktemp("models")
    network, listed = (small(max_epochs=3, candidates=size).fit(*rows) for size in (0, 16))
    ensemble = XMLEnsemble(small(max_epochs=1), 2, random_state=0).fit(*rows)
    for name, model, compact in (("one", network, False), ("several", ensemble, False), ("compact", listed, True)):
        model.save(folder / name, compact=compact)
    loaded = [load_model(folder / name) for name in ("one", "several", "compact")]
    return dict(zip(KINDS, (network, listed, ensemble, *loaded), strict=True))


def answers(model, X):
    """Return all that a model says of many rows and of one."""
    few = X[:1]
    return [
        *model.predict_topk(X, 5), *model.predict_topk(few, 3), *model.predict_topk(X, 2, labels=[3, 8]),
        *model.predict_topk(X, 3, label_weight=np.linspace(1, 2, 40)),
        model.decision_function(X), model.predict_proba(X), model.predict(X).toarray(), model.classes_,
    ]  # fmt: skip


def others(model):
    """Return the parameters of a model, those of its classifier too, each with another value."""
    if isinstance(model, XMLClassifier):
        return OTHERS
    return {**{f"estimator__{name}": value for name, value in OTHERS.items()}, **OTHERS_OF_ENSEMBLE}


@pytest.mark.parametrize("kind", [XMLClassifier, XMLEnsemble])
def test_every_parameter_of_the_constructor_is_tried(kind):
    tried = OTHERS if kind is XMLClassifier else OTHERS_OF_ENSEMBLE
    assert set(tried) == set(inspect.signature(kind).parameters)


@pytest.mark.parametrize("kind", KINDS)
def test_a_parameter_set_after_fit_changes_no_bit_of_an_answer(kind, models, held_out):
    fitted, X = models[kind], held_out[0][:40]
    before = answers(fitted, X)
    for name, value in others(fitted).items():
        model = copy.deepcopy(fitted).set_params(**{name: value})
        for old, new in zip(before, answers(model, X), strict=True):
            np.testing.assert_array_equal(old, new, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_saved_after_parameters_changed_answers_as_it_did(kind, models, held_out, tmp_path):
    fitted, X = models[kind], held_out[0][:40]
    model = copy.deepcopy(fitted).set_params(**others(fitted))
    if isinstance(model, XMLEnsemble):
        model.set_params(n_estimators=2)
    for name, one in (("model", model), ("expected", fitted)):
        one.save(tmp_path / name, compact=kind == "loaded compact")
    for old, new in zip(
        answers(load_model(tmp_path / "expected"), X), answers(load_model(tmp_path / "model"), X), strict=True
    ):
        np.testing.assert_array_equal(old, new)


def test_the_precision_is_decided_by_fit(rows):
    native = "bfloat16" if bf16.HAS_AVX512_BF16 else "float32"
    for precision, decided in (("auto", native), ("float32", "float32")):
        model = small(max_epochs=1, precision=precision).fit(*rows)
        assert (model.precision_, model.device_) == (decided, "cpu")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_precision_and_device_are_saved_and_used(rows, tmp_path, precision):
    small(max_epochs=1, precision="float32").fit(*rows).save(tmp_path / "model")
    rewrite(tmp_path / "model", {"precision": precision})
    model = load_model(tmp_path / "model")
    assert (model.precision_, model.device_) == (precision, "cpu")
    model.predict_topk(rows[0])
    (scorer,) = model.fitted_._scorers.values()
    assert scorer.device.bfloat16 == (precision == "bfloat16" and bf16.HAS_AVX512_BF16)


def test_a_processor_without_bfloat16_predicts_in_float32_and_says_so(rows, tmp_path, monkeypatch, caplog):
    model = small(max_epochs=1, precision="float32").fit(*rows)
    expected = model.predict_topk(rows[0])
    model.save(tmp_path / "model")
    rewrite(tmp_path / "model", {"precision": "bfloat16"})
    monkeypatch.setattr(bf16, "HAS_AVX512_BF16", False)
    usable_precision.cache_clear()
    found = load_model(tmp_path / "model").predict_topk(rows[0])
    usable_precision.cache_clear()
    assert "which this processor lacks: predicting in float32" in caplog.text
    for old, new in zip(expected, found, strict=True):
        np.testing.assert_array_equal(old, new)


def test_device_and_precision_can_be_chosen_when_a_model_is_loaded(rows, tmp_path):
    small(max_epochs=1).fit(*rows).save(tmp_path / "model")
    assert load_model(tmp_path / "model", precision="float32").precision_ == "float32"
    native = "bfloat16" if CPU(1).bfloat16 else "float32"
    assert XMLClassifier.load(tmp_path / "model", device="cpu", precision="auto").precision_ == native
    for given, message in (
        ({"device": "cpu*2"}, r"device: must name one device, as in 'cpu', got 'cpu\*2'"),
        ({"device": "gpu"}, "must be of the kinds cpu, cuda"),
        ({"precision": "int4"}, "precision must be one of"),
    ):
        with pytest.raises(DataError, match=message):
            load_model(tmp_path / "model", **given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"precision": "auto"}, "precision must be 'float32' or 'bfloat16', got 'auto'"),
        ({"precision": None}, "precision must be 'float32' or 'bfloat16', got None"),
        ({"device": "cpu,cpu"}, "device must be one device, got 'cpu,cpu'"),
        ({"device": 3}, "device must be one device, got 3"),
    ],
)
def test_an_altered_device_or_precision_is_refused(rows, tmp_path, change, message):
    small(max_epochs=1).fit(*rows).save(tmp_path / "model")
    rewrite(tmp_path / "model", change)
    with pytest.raises(ModelFileError, match=message):
        load_model(tmp_path / "model")
