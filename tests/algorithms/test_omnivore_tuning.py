"""Omnivore tuned in a run: trials leave no trace, whoever leaves, fails or interrupts."""

from __future__ import annotations

import copy
import json
import pickle
import time

import numpy as np
import pytest

from shared.ended import ended_run
from shared.omnivore_runs import N_ROWS, NETWORK, SPEEDS, Updates, cpu, go, simulated
from xmlsgd.algorithms.omnivore import Omnivore
from xmlsgd.algorithms.omnivore_tuner import DIVISORS, GroupTuner, Phase, Setting
from xmlsgd.nn.optimizers import SGD, Adam
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.callbacks import Callback
from xmlsgd.training.checkpoints import Checkpoint, read_checkpoint
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.executors.simulated import Simulated
from xmlsgd.training.executors.threads import Threads
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train


class Stay(Callback):
    """Keeps the models of the ends of epochs and the rows of the steps that it is shown, less those that were lost."""

    def start(self, n_rows, epochs, center):
        self.centers, self.rows = [], 0

    def span(self, report):
        self.rows += report.rows

    def lost(self, reports):
        self.rows -= sum(report.rows for report in reports)

    def epoch(self, record, center):
        self.centers.append(center.copy())
        return False


class Tuned(Updates):
    """Keeps what each phase began with, and the steps given out in it."""

    def start(self, workers, n_rows):
        self.begun = []
        self.parts = dict.fromkeys(range(9), 0)  # updates of each worker that stay
        super().start(workers, n_rows)

    def begin_phase(self, phase):
        super().begin_phase(phase)
        self.fresh = True
        self.begun.append([self.trial, None, 0])

    def keep_reads(self, comm):
        if self.fresh:
            self.begun[-1][1] = comm.center.copy()
        self.fresh = False
        super().keep_reads(comm)

    def submitted(self, w, rows, now):
        super().submitted(w, rows, now)
        self.begun[-1][2] += rows
        self.parts[w] += self.trial is None


def tuned(**numbers):
    """Return an Omnivore whose trials take a few updates."""
    long_seconds = numbers.pop("long_seconds", 0.03)
    algorithm = Tuned(**{"batch": 8, "learning_rate": 1.0, "tune": True, "slice_seconds": 0.004} | numbers)
    algorithm.long_seconds = long_seconds
    return algorithm


def test_trials_change_neither_the_model_nor_the_rows_of_an_epoch(dataset):
    algorithm, spy = tuned(), Stay()
    run = go(dataset, algorithm, simulated(), epochs=12, callbacks=[spy])
    assert [record["rows"] for record in run.records] == [N_ROWS * e for e in range(1, 13)]
    assert spy.rows == 12 * N_ROWS, "callbacks see what stays"
    checkpoints = [np.zeros(NETWORK.layout.size, np.float32), *spy.centers]
    NETWORK.initialize(checkpoints[0], dataset.Y, 0)
    kinds = [trial is None for trial, *_ in algorithm.begun]
    assert sum(kinds) >= 2, "it is tuned again after a long stretch"
    assert kinds.count(False) > 20
    at, epochs = 0, 0
    for stays, (_, model, rows) in zip(kinds, algorithm.begun, strict=True):
        if model is not None:
            np.testing.assert_array_equal(model, checkpoints[epochs])
        if stays:
            at += rows
            epochs = at // N_ROWS
            assert at == epochs * N_ROWS, "tuning begins with an epoch"
    assert epochs == 12


def test_a_trial_ends_with_its_slice_or_with_the_rows_of_the_epoch(dataset):
    algorithm = tuned(slice_seconds=1e9)
    go(dataset, algorithm, simulated(), epochs=1)
    assert {rows for trial, _, rows in algorithm.begun if trial is not None} == {N_ROWS}
    algorithm = tuned(slice_seconds=1e-9)
    go(dataset, algorithm, simulated(), epochs=1)
    assert max(rows for trial, _, rows in algorithm.begun if trial is not None) <= 4 * 8
    assert algorithm.begun[-1][::2] == [None, N_ROWS]


def test_a_trial_loses_no_time_to_what_callbacks_do_before_it(dataset, monkeypatch):
    clock, skipped = time.perf_counter, [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + sum(skipped))

    class Slow(Callback):
        def epoch(self, record, center):
            skipped.append(1e6)
            return False

    algorithm = tuned(slice_seconds=1e5, long_seconds=1e-9)
    go(dataset, algorithm, Threads([cpu(), cpu()]), epochs=3, callbacks=[Slow()])
    assert [trial is None for trial, *_ in algorithm.begun].count(True) == 3
    *over, (_, _, still_to_come) = algorithm.begun  # a trial that the next epoch would begin with
    assert {rows for trial, _, rows in over if trial is not None} == {N_ROWS}
    assert still_to_come == 0


def test_a_trial_that_diverges_is_passed_over_and_leaves_no_trace(dataset):
    executor = Simulated(cpu(), [VirtualDevice()] * 2)
    algorithm = tuned(learning_rate=1e20, long_seconds=1e9)
    with np.errstate(all="ignore"):  # NumPy warns of what overflows on the way
        go(dataset, algorithm, executor, epochs=3, optimizer=Adam())
    assert not np.isfinite(algorithm.tuner.results[0].loss)
    assert algorithm.notes()["trials"][0] == {"groups": 1, "momentum": 0.9, "learning_rate": 1e20, "loss": None}
    assert np.isfinite(executor.shared.states).all()
    assert len(algorithm.begun) > len(DIVISORS)
    first = algorithm.begun[0][1]
    for _, model, _ in algorithm.begun[: len(DIVISORS)]:
        np.testing.assert_array_equal(model, first)


def test_the_optimizer_states_know_nothing_of_trials(dataset):
    algorithm, executor = tuned(learning_rate=0.1), simulated()
    run = go(dataset, algorithm, executor, epochs=4, optimizer=Adam())
    assert len(algorithm.tuner.results) > 4
    assert run.updates == max(algorithm.parts.values())


def test_the_notes_name_the_choice_and_what_led_to_it(dataset):
    """The setting that is trained with, not the last that was tried."""
    algorithm = tuned(long_seconds=1e9)
    (record,) = go(dataset, algorithm, simulated(), epochs=1).records
    notes = json.loads(json.dumps(record, allow_nan=False))["algorithm"]
    chosen = {name: notes[name] for name in Setting._fields}
    tried = notes["trials"]
    assert len(tried) == len(algorithm.tuner.results)
    least = min(trial["loss"] for trial in tried)
    assert chosen | {"loss": least} in tried
    assert chosen.items() - tried[-1].items(), "it is not what was tried last"
    assert len(notes["members"]) == chosen["groups"]
    assert algorithm.learning_rate_of(0, 8) == chosen["learning_rate"]


def test_a_tuned_run_repeats_to_the_bit_and_its_algorithm_can_be_copied(dataset):
    first, second = tuned(), tuned()
    runs = [go(dataset, algorithm, simulated(noise=0.1), epochs=3) for algorithm in (first, second)]
    np.testing.assert_array_equal(runs[0].params, runs[1].params)
    assert first.notes() == second.notes()
    for copied in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        np.testing.assert_array_equal(go(dataset, copied, simulated(noise=0.1), epochs=3).params, runs[0].params)


def test_an_interrupt_in_a_trial_leaves_the_model_of_the_snapshot(dataset):
    class Stopped(Tuned):
        def update(self, comm, j):
            super().update(comm, j)
            if self.trial == 6 and self.version == 2:
                raise KeyboardInterrupt

    algorithm = Stopped(8, 1.0, tune=True, slice_seconds=0.02)
    with pytest.raises(KeyboardInterrupt) as interrupt:
        go(dataset, algorithm, simulated())
    np.testing.assert_array_equal(ended_run(interrupt.value).params, algorithm.begun[0][1])


def test_a_checkpoint_in_a_trial_is_written_at_once_of_the_model_of_the_snapshot(dataset, tmp_path, monkeypatch):
    """In the second epoch, which begins with trials; the run then goes on from the end of the first."""
    at = Checkpoint(tmp_path / "kept", minutes=1e6)

    class Stopped(Tuned):
        epochs, asked = 0, 0

        def update(self, comm, j):
            super().update(comm, j)
            if self.trial is not None and self.epochs == 1:
                self.asked += 1
                assert at.end_by(KeyboardInterrupt())

        def end_epoch(self, comm):
            super().end_epoch(comm)
            self.epochs += 1

    job, schedule, spy = Job(dataset, NETWORK, SGD()), Schedule(3, "constant", 0), Stay()
    settings = {"batch": 8, "learning_rate": 1.0, "tune": True, "slice_seconds": 0.004}
    monkeypatch.setattr(Omnivore, "long_seconds", 1e-6)
    algorithm, executor = Stopped(**settings), simulated()
    with executor.device.start(), pytest.raises(KeyboardInterrupt):
        train(job, algorithm, executor, schedule, [spy], at)
    assert algorithm.asked == 1
    saved = read_checkpoint(at)
    assert (saved.position.epoch, saved.position.at, saved.position.rows) == (1, 0, N_ROWS)
    np.testing.assert_array_equal(saved.arrays.finite("params", NETWORK.layout.size), spy.centers[0])
    executor = simulated()
    with executor.device.start():
        run = train(job, Tuned(**settings), executor, schedule, [Stay()], at)
    assert [record["rows"] for record in run.records] == [N_ROWS, 2 * N_ROWS, 3 * N_ROWS]


def test_a_worker_that_leaves_in_a_trial_does_not_end_it(dataset):
    fleet = [VirtualDevice(), VirtualDevice(absent=((0.006, 0.03),)), VirtualDevice(speed=0.5), VirtualDevice()]
    algorithm, shown = tuned(long_seconds=1e9), Stay()
    run = go(dataset, algorithm, Simulated(cpu(), fleet), epochs=3, callbacks=[shown])
    assert [record["rows"] for record in run.records] == [N_ROWS, 2 * N_ROWS, 3 * N_ROWS]
    assert shown.rows == 3 * N_ROWS, "callbacks know nothing of a trial, nor of what is lost in it"
    assert {phase.setting.groups for phase, _ in algorithm.tuner.history()} == {1, 2, 4}
    assert sorted(algorithm.workers) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "make", [lambda: Threads([cpu(), cpu()]), lambda: Processes([cpu] * 2)], ids=["threads", "processes"]
)
def test_groups_and_the_tuner_work_on_real_executors(dataset, make):
    algorithm = tuned(long_seconds=1e9)
    run = go(dataset, algorithm, make(), epochs=2)
    assert [record["rows"] for record in run.records] == [N_ROWS, 2 * N_ROWS]
    assert {phase.setting.groups for phase, _ in algorithm.tuner.history()} == {1, 2}
    assert all(result.seconds > 0 and np.isfinite(result.loss) for _, result in algorithm.tuner.history())
    assert not run.diverged
    assert np.any(run.params != algorithm.begun[0][1])


@pytest.mark.parametrize("seed", range(12))
def test_every_row_is_in_the_model_once_whoever_leaves_and_comes_in_whatever_phase(dataset, seed):
    rng = np.random.default_rng(seed)

    def absences(end):
        moments = np.sort(rng.uniform(0, end, 6))
        return tuple((float(a), float(b)) for a, b in moments.reshape(-1, 2))

    fleet = [VirtualDevice(speed=speed, noise=0.2, absent=absences(0.15)) for speed in SPEEDS[: 2 + seed % 3]]
    algorithm = tuned(slice_seconds=float(rng.uniform(1e-4, 0.02)))
    run = go(dataset, algorithm, Simulated(cpu(), fleet, seed=seed), epochs=6)
    assert [record["rows"] for record in run.records] == [N_ROWS * e for e in range(1, 7)]
    assert len(algorithm.tuner.results) > 4
    assert np.isfinite(run.params).all()


def test_all_trials_begin_without_motion_also_after_a_stretch_of_training(dataset):
    """The same setting comes to the same loss, whichever trial it is."""

    class Twice(GroupTuner):
        def program(self):
            setting = Setting(1, 0.9, 0.5)
            for trial in (False, True, True):
                yield Phase(setting, trial)
            while True:
                yield Phase(setting, False)

    class Retuned(Omnivore):
        long_seconds = 1e-9

        def start(self, workers, n_rows):
            super().start(workers, n_rows)
            self.tuner = Twice(2, 1.0)
            self.begin_phase(self.tuner.phase())

    algorithm = Retuned(8, 0.5, tune=True, slice_seconds=1e9)
    go(dataset, algorithm, simulated((1.0, 1.0)), epochs=2)
    _, first, second, *_ = algorithm.tuner.results
    assert first.loss == second.loss
