"""Whole runs of the benchmarks: which earlier ones are taken."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.launch import OURS
from benchmarks.peers.network import NetworkAlone
from benchmarks.peers.ours import Ours
from benchmarks.plan import Plan
from benchmarks.runs import DEFAULT_PEERS, SEEDS, mean_of_seeds, notes, settings_of, whole_runs


@dataclass
class Counting:
    """A launcher that starts nothing and counts what it was asked for."""

    threads: int = 1
    asked: list = field(default_factory=list)

    def run_ranked(self, peer, setting, folder, work, *options):
        self.asked.append((peer, setting, options))
        return {"train_seconds": 1.0, "predict_seconds": 1.0}, np.tile(np.arange(5, dtype=np.int32), (4, 1))


@pytest.fixture
def prepared(tmp_path):
    for part in ("trn", "tst"):
        sp.save_npz(tmp_path / f"Y.{part}.npz", sp.csr_matrix(np.eye(4, 6, dtype=np.float32)))
    return tmp_path


def test_an_earlier_run_is_taken_only_where_its_parameters_are_those_asked_for(prepared):
    launcher = Counting()

    def runs_after(peer, **parameters):
        plan = Plan(launcher, prepared / "work", prepared, peers=(peer,), parameters=parameters, reuse=True)
        assert "failure" not in whole_runs(prepared, plan)[0]
        return len(launcher.asked)

    assert runs_after("ours:fast") == runs_after("ours:fast") == 1
    assert runs_after("ours:fast", max_epochs=1) == runs_after("ours:fast", max_epochs=1) == 2
    assert runs_after("ours:fast") == 3
    assert runs_after("pecos:man") == runs_after("pecos:man", max_epochs=2) == 4  # which takes no parameters of ours


def test_an_earlier_run_of_a_setting_that_has_changed_is_made_anew(prepared, monkeypatch):
    launcher = Counting()
    plan = Plan(launcher, prepared / "work", prepared, peers=("pecos:man",), reuse=True)
    whole_runs(prepared, plan)
    monkeypatch.setattr("benchmarks.runs.settings_of", lambda peer: {"man": {"negative_sampling_scheme": "man"}})
    assert whole_runs(prepared, plan)[0]["parameters"] == {"negative_sampling_scheme": "man"}
    assert len(launcher.asked) == 2


def test_of_several_seeds_measures_are_means_and_costs_medians(prepared):
    launcher = Counting()
    (run,) = whole_runs(prepared, Plan(launcher, prepared / "work", prepared, peers=("pecos",), seeds=2))
    assert [options[-2:] for _, _, options in launcher.asked] == [("--random-state", "0"), ("--random-state", "1")]
    assert len(run[SEEDS]) == 2
    runs = [
        {"peer": "pecos", "setting": "default", "train_seconds": s, "measures": {"P@1": p}}
        for s, p in ((1.0, 70.0), (9.0, 71.0), (2.0, 75.0))
    ]
    merged = mean_of_seeds(runs)
    assert (merged["train_seconds"], merged["measures"], merged[SEEDS]) == (2.0, {"P@1": 72.0}, [70.0, 71.0, 75.0])
    assert "pecos 70.00 to 75.00" in notes([merged])[0]
    failed = {"peer": "pecos", "setting": "default", "failure": "no"}
    assert mean_of_seeds([runs[0], failed]) is failed


def test_the_settings_of_every_runner_can_be_read_without_its_package():
    assert settings_of("ours") == Ours.settings
    assert settings_of("network") == NetworkAlone.settings
    for name in {*DEFAULT_PEERS, *OURS}:
        peer, _, setting = name.partition(":")
        assert (setting or "default") in settings_of(peer) or peer == "network"
