"""`fit` with a checkpoint: what a killed call has left, the same call goes on with."""

from __future__ import annotations

import numpy as np
import pytest

from shared.failing import Failing
from shared.planted import small
from xmlsgd import Checkpoint, XMLClassifier, XMLEnsemble
from xmlsgd.errors import DataError, DivergenceError, ModelFileError
from xmlsgd.training.callbacks import Callback


class Killed(Exception):
    """Stands for the end of a process."""


def killed(model, rows, steps, at, **more):
    """Let a call be killed after some steps."""
    with pytest.raises(Killed):
        model.fit(*rows, callbacks=[Failing(Killed(), steps)], checkpoint=Checkpoint(at, minutes=0), **more)


class Steps(Callback):
    """Counts them."""

    def __init__(self):
        self.count = 0

    def span(self, report):
        self.count += 1


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"early_stopping": True, "n_epochs_no_change": 2},
        {"negatives": 16},
        {"candidates": 16, "hidden_dropout": 0.3},
    ],
    ids=["plain", "stopping", "sampled", "listed"],
)
def test_a_killed_fit_goes_on_and_ends_as_one_that_was_not(rows, held_out, tmp_path, parameters):
    def made():
        return small(max_epochs=4, batch_size=100, n_jobs=1, **parameters)

    whole, at = made().fit(*rows, eval_set=held_out), tmp_path / "kept"
    for steps in (9, 5):
        killed(made(), rows, steps, at, eval_set=held_out)
    model = made().fit(*rows, eval_set=held_out, checkpoint=at)
    np.testing.assert_array_equal(model.params_, whole.params_)
    for name in ("loss", "rows", "P@1"):
        assert [record[name] for record in model.history_] == [record[name] for record in whole.history_]
    for one, other in zip(model.predict_topk(held_out[0], 5), whole.predict_topk(held_out[0], 5), strict=True):
        np.testing.assert_array_equal(one, other)
    assert list(tmp_path.iterdir()) == []


def test_a_model_is_kept_if_ctrl_c_comes_while_its_checkpoint_is_removed(rows, tmp_path, monkeypatch):
    def interrupted(checkpoint):
        raise KeyboardInterrupt

    whole, model = (small(max_epochs=2, batch_size=100, n_jobs=1) for _ in range(2))
    whole.fit(*rows)
    monkeypatch.setattr(Checkpoint, "done", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*rows, checkpoint=tmp_path / "kept")
    np.testing.assert_array_equal(model.params_, whole.params_)


@pytest.mark.parametrize("stopping", [False, True])
def test_where_no_seed_is_given_the_run_keeps_the_one_it_began_with(rows, tmp_path, stopping):
    model = small(max_epochs=3, random_state=None, early_stopping=stopping)
    killed(model, rows, 4, tmp_path / "kept")
    seed, model = model.fitted_.seed, small(max_epochs=3, random_state=None, early_stopping=stopping)
    model.fit(*rows, checkpoint=Checkpoint(tmp_path / "kept", keep=True))
    assert model.fitted_.seed == seed
    assert (tmp_path / "kept").is_dir()
    with pytest.raises(DataError, match=r"of another run: another seed \(random_state\); resume"):
        small(max_epochs=3, random_state=7, early_stopping=stopping).fit(*rows, checkpoint=tmp_path / "kept")


def test_what_ended_waits_for_its_owner_and_is_not_trained_again(rows, tmp_path):
    kept, steps = Checkpoint(tmp_path / "kept", keep=True), Steps()
    first = small(max_epochs=2).fit(*rows, checkpoint=kept)
    second = small(max_epochs=2).fit(*rows, checkpoint=kept, callbacks=[steps])
    np.testing.assert_array_equal(first.params_, second.params_)
    assert (steps.count, second.n_epochs_) == (0, 2)
    kept.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_learns_on_goes_on_too(rows, tmp_path):
    def made():
        return small(max_epochs=2, n_jobs=1, warm_start=True).fit(*rows)

    whole = made().fit(*rows)
    killed(made(), rows, 4, tmp_path / "kept")
    model = made().fit(*rows, checkpoint=tmp_path / "kept")
    np.testing.assert_array_equal(model.params_, whole.params_)
    assert [record["epoch"] for record in model.history_] == [0, 1, 2, 3]


def test_other_rows_to_measure_on_make_it_another_run_where_they_decide(rows, held_out, tmp_path):
    def stopping():
        return small(max_epochs=3, early_stopping=True)

    killed(stopping(), rows, 4, tmp_path / "kept", eval_set=held_out)
    with pytest.raises(DataError, match="kept: is the checkpoint of another run: other rows to evaluate on; resume"):
        stopping().fit(*rows, eval_set=(held_out[0][:9], held_out[1][:9]), checkpoint=tmp_path / "kept")


def test_a_run_that_diverges_leaves_no_checkpoint(rows, tmp_path):
    model = small(optimizer="sgd", learning_rate_init=1e30)
    with pytest.raises(DivergenceError):
        model.fit(*rows, checkpoint=Checkpoint(tmp_path / "kept", minutes=0))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("seed", "of_classifier"), [(0, 0), (None, 0), (None, None)])
def test_an_ensemble_goes_on_with_the_classifier_that_was_under_way(rows, held_out, tmp_path, seed, of_classifier):
    def made():
        classifier = small(max_epochs=3, batch_size=100, candidates=16, random_state=of_classifier)
        return XMLEnsemble(classifier, 3, random_state=seed)

    killed(made(), rows, 24, tmp_path / "kept")
    assert sorted(part.name for part in (tmp_path / "kept").iterdir()) == ["0", "1"]
    steps = Steps()
    model = made().fit(*rows, checkpoint=tmp_path / "kept", callbacks=[steps])
    assert steps.count == 3 * 18 - 23
    assert list(tmp_path.iterdir()) == []
    assert len({member.fitted_.seed for member in model.estimators_}) == 3
    if seed is not None:
        expected = made().fit(*rows).predict_topk(held_out[0], 5)
        np.testing.assert_array_equal(model.predict_topk(held_out[0], 5)[1], expected[1])


def test_what_an_ensemble_finds_where_its_checkpoints_go_stays(rows, tmp_path):
    def ensemble():
        return XMLEnsemble(small(max_epochs=2), 2, random_state=0)

    killed(ensemble(), rows, 4, tmp_path / "ours")
    (tmp_path / "ours" / "letter.txt").write_text("dear")
    with pytest.raises(ModelFileError, match=r"ours: holds letter.txt, which is no part of it; the checkpoint of an"):
        ensemble().fit(*rows, checkpoint=tmp_path / "ours")
    killed(small(max_epochs=2), rows, 4, tmp_path / "other")
    with pytest.raises(ModelFileError, match=r"other: holds .*, which is no part of it; the checkpoint of an ensemble"):
        ensemble().fit(*rows, checkpoint=tmp_path / "other")
    with pytest.raises(ModelFileError, match="ours: is the checkpoint of an ensemble; resume the ensemble, or remove"):
        small(max_epochs=2).fit(*rows, checkpoint=tmp_path / "ours")
    assert (tmp_path / "ours" / "letter.txt").read_text() == "dear"
    small(max_epochs=2).fit(*rows, checkpoint=tmp_path / "other")


def test_a_checkpoint_that_cannot_be_removed_costs_no_model(rows, tmp_path, monkeypatch, caplog):
    def refuse(self):
        raise PermissionError(13, "Permission denied", str(self.path))

    monkeypatch.setattr(Checkpoint, "remove", refuse)
    model = small(max_epochs=1).fit(*rows, checkpoint=tmp_path / "kept")
    assert model.n_epochs_ == 1
    assert "the checkpoint cannot be removed: [Errno 13] Permission denied" in caplog.text


@pytest.mark.parametrize("given", [3, "", b"", ["kept"], True])
def test_a_checkpoint_is_a_path_or_says_more(rows, given):
    for model in (XMLClassifier(), XMLEnsemble()):
        with pytest.raises(DataError, match="checkpoint: must be a path or a Checkpoint, got"):
            model.fit(*rows, checkpoint=given)


def test_a_folder_of_something_else_is_refused_before_anything_is_trained(rows, fitted, tmp_path):
    fitted.save(tmp_path / "model")
    steps = Steps()
    with pytest.raises(ModelFileError, match="model: exists and is not a checkpoint"):
        small().fit(*rows, checkpoint=tmp_path / "model", callbacks=[steps])
    assert steps.count == 0
    assert XMLClassifier.load(tmp_path / "model").n_epochs_ == fitted.n_epochs_
