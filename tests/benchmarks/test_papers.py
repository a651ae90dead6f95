"""The papers' experiments: every table, its JSON and its plots on tiny data; the numbers behind a table."""

from __future__ import annotations

import json
import re
from math import inf

import numpy as np
import pytest

from benchmarks.papers import __main__ as experiments
from benchmarks.papers import study, tables
from benchmarks.papers.__main__ import EXPERIMENTS, command_line, main
from benchmarks.papers.beyond import FIRST, LATER, UNDECIDED, cell, seconds_to, verdict
from benchmarks.papers.costs import UNLEARNED
from benchmarks.papers.crossbow import ByFrequency
from benchmarks.papers.merges import SumToOne
from benchmarks.papers.study import LOSS, NOISY_POINTS, Runs, point_at, ranged, target
from benchmarks.report import RESULTS
from shared.paths import DATA, ROOT
from xmlsgd.algorithms.adaptive import AdaptiveSGD
from xmlsgd.algorithms.rounds import LocalWork
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.csr import Dataset, indicator
from xmlsgd.estimators.inference import Measure
from xmlsgd.metrics import precision_at_k
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.job import Job
from xmlsgd.training.simulation import Experiment, Outcome

TINY = ["--rows", "240", "--test-rows", "60", "--hidden", "8", "--epochs", "1", "--batch", "16", "--threads", "1"]
TINY += ["--seeds", "2", "--rates", "1", "3"]
FEW = ["--rows", "120", "--seeds", "1", "--rates", "1"]
TABLES = {
    "adaptive": ("adaptive-S2", "adaptive-S3"),
    "hogbatch": ("hogbatch-S4",),
    "crossbow": ("crossbow",),
    "omnivore": ("omnivore", "omnivore-efficiency"),
}
COSTS = ("costs", "ratios")
BY_SCENARIO = ("merges", "rounds")
COLUMNS_OF_ALL = [
    "scenario", "target P@1", "one device", "synchronous", "elastic", "Crossbow", "Omnivore", "Hogbatch",
    "Adaptive Hogbatch", "Adaptive SGD", "Adaptive SGD, 100", "our adaptive", "our auto",
    "best of the others", "our auto is", "our adaptive is",
]  # fmt: skip


@pytest.mark.parametrize(
    "experiment", [pytest.param(name, marks=() if name == "crossbow" else pytest.mark.slow) for name in TABLES]
)
def test_every_experiment_leaves_tables_runs_and_plots(experiment, tmp_path):
    pytest.importorskip("matplotlib")
    assert main(["--data", str(DATA), "--out", str(tmp_path), "--only", experiment, *TINY]) == 0
    for name in TABLES[experiment]:
        text, told = ((tmp_path / f"{name}-data{kind}").read_text() for kind in (".md", ".json"))
        found = json.loads(told)
        assert re.search(r'"P@1": \[ [\d., ]+ \]', told), "a line for each list of numbers"
        assert text.startswith("## ")
        assert "rates 1, 3 for everybody" in text
        for method, runs in found["result"].items():
            assert f"| {method} |" in text or name == "omnivore-efficiency"
            assert set(runs["grid"]) >= ({"3"} if method == "tuned" else {"1", "3"})
            assert len(runs["seeds"]) == 2
            assert all(len({len(values) for values in seed["curves"].values()}) <= 1 for seed in runs["seeds"])
        assert found["machine"]["versions"]["xmlsgd"]
    for name in TABLES[experiment][:1]:
        assert (tmp_path / f"{name}-data.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_all_scenarios_are_in_the_table_that_goes_beyond_the_papers(tmp_path):
    assert main(["--data", str(DATA), "--out", str(tmp_path), "--only", "beyond", *TINY, *FEW]) == 0
    text = (tmp_path / "beyond-S1-S8-data.md").read_text()
    found = json.loads((tmp_path / "beyond-S1-S8-data.json").read_text())["result"]
    assert list(found) == [f"S{i}" for i in range(1, 9)]
    assert {*TABLES, "beyond", "costs", *BY_SCENARIO} == set(EXPERIMENTS)
    for name, methods in found.items():
        (row,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        assert row.count("|") == len(COLUMNS_OF_ALL) + 1
        for runs in methods.values():
            assert len(runs["P@1"]) == len(runs["curves"]) == 1
    (header,) = [line for line in text.splitlines() if line.startswith("| scenario |")]
    assert header == f"| {' | '.join(COLUMNS_OF_ALL)} |"


@pytest.mark.slow
@pytest.mark.parametrize("experiment", BY_SCENARIO)
def test_what_merges_and_their_number_change_is_told_by_scenario(experiment, tmp_path):
    words = ["--data", str(DATA), "--out", str(tmp_path), "--only", experiment, "--scenarios", "S1", "S3", *TINY, *FEW]
    assert main(words) == 0
    found = json.loads((tmp_path / f"{experiment}-data.json").read_text())["result"]
    text = (tmp_path / f"{experiment}-data.md").read_text()
    assert list(found) == ["S1", "S3"]
    assert all(text.count(f"| {name} | {method} |") == 1 for name in found for method in found[name])
    assert text.count("The target is") == 2


def test_perturbed_weights_are_made_to_sum_to_one():
    class Small:
        def norm(self, worker):
            return 0.0

    work = {0: LocalWork(4, 40, 10), 1: LocalWork(1, 10, 10)}
    for kind, total in ((AdaptiveSGD, 1 + 0.1 * (0.8 - 0.2)), (SumToOne, 1.0)):
        assert sum(kind.published(10).merge_weights(Small(), work).values()) == pytest.approx(total)


@pytest.mark.slow
def test_costs_are_those_of_the_devices_and_of_no_arithmetic(tmp_path):
    """Of given costs, two runs make the same tables, whatever else the machine does."""
    words = ["--data", str(DATA), "--only", "costs", *TINY, *FEW, "--costs", "1e-3", "1e-4", "1e-7"]
    results = []
    for folder in ("first", "second"):
        assert main([*words, "--out", str(tmp_path / folder)]) == 0
        results.append([json.loads((tmp_path / folder / f"{name}-data.json").read_text())["result"] for name in COSTS])
    assert results[0] == results[1]
    costs, of_ratios = results[0]
    assert list(costs) == ["S2", "S3", "S4", "S1"]
    assert len(of_ratios) == 3 * 4
    text = (tmp_path / "first" / "ratios-data.md").read_text()
    assert "takes 1 ms, 100 microseconds a row and 100 ns a feature." in text
    (row,) = [line.split(" | ") for line in text.splitlines() if line.startswith("| 4 | 1/10 |")]
    alone, beside = (median_of(of_ratios["4 devices, 1:10"], name) for name in ("GPUs alone", "Hogbatch"))
    assert (float(row[3]), row[-1]) == (pytest.approx(alone / beside, abs=0.006), "1.10 |")


def median_of(runs, name):
    """The seconds of a method that ran with one seed."""
    (seconds,) = runs[name]["seconds"]
    return seconds


def names_of(experiment, scenarios):
    """The tables that an experiment writes."""
    if experiment == "costs":
        return set(COSTS)
    if experiment in BY_SCENARIO:
        return {experiment}
    if experiment == "beyond":
        return {f"beyond-{'-'.join(dict.fromkeys([scenarios[0], scenarios[-1]]))}"}
    return {name for name in TABLES[experiment] if experiment != "adaptive" or name.split("-")[1] in scenarios}


def test_one_command_makes_every_table_of_the_page_with_its_settings(monkeypatch, tmp_path):
    """Only the number of seeds is the command's."""
    made = {}

    def run(words):
        args = command_line().parse_args(words)
        assert args.seeds == 7
        rates = ", ".join(f"{rate:g}" for rate in args.rates)
        settings = f"{args.rows:,} rows, {args.epochs} epochs, {args.hidden} hidden units, batches of at most "
        how = UNLEARNED if args.only == ["costs"] else f"rates {rates} for everybody"
        for name in names_of(args.only[0], args.scenarios):
            made[f"{name}-{args.data.name}"] = [settings + f"{args.batch} rows, {how}"]
            if args.only != ["costs"]:
                made[f"{name}-{args.data.name}"].append(f" --test-rows {args.test_rows} ")

    monkeypatch.setattr(experiments, "main", run)
    monkeypatch.setattr(tables, "made", lambda folder, part: folder)
    tables.main(["--data", str(tmp_path), "--seeds", "7"])
    assert made.keys() == {path.stem for path in (RESULTS / "papers").glob("*.md")}
    for name, settings in made.items():
        text = (RESULTS / "papers" / f"{name}.md").read_text()
        assert all(told in text for told in settings)
    page = (ROOT / "docs" / "papers.md").read_text()
    assert all(any(name.startswith(known) for known in re.findall(r"`([\w-]+)`", page)) for name in made)


def numbers(text):
    """Return the numbers of a text."""
    return [float(number) for number in re.findall(r"[\d.]+", text) if number != "."]


def test_the_tables_of_the_page_tell_what_their_runs_settled_at():
    """By the curves that are published with them."""
    found = {
        path.stem: json.loads(path.read_text())["result"]
        for experiment in ("adaptive", "hogbatch", "crossbow", "omnivore-[!e]")
        for path in (RESULTS / "papers").glob(f"{experiment}*.json")
    }
    assert len(found) == 7
    for name, methods in found.items():
        table = (RESULTS / "papers" / f"{name}.md").read_text()
        for method, runs in methods.items():
            ended = [outcome(*seed["curves"]["P@1"], diverged=seed["diverged"]) for seed in runs["seeds"]]
            (row,) = [line for line in table.splitlines() if line.startswith(f"| {method} |")]
            wanted = numbers(ranged(study.finals(Runs(runs["rate"], ended, {}))))
            cells = [numbers(cell) for cell in row.split("|")]
            assert any(cell == pytest.approx(wanted, abs=0.011) for cell in cells), "curves are rounded"


def test_ours_is_first_or_later_only_where_the_ranges_of_the_seeds_are_apart():
    assert verdict([1.0, 1.5, 1.9], [2.0, 2.5, 4.0]) == FIRST
    assert verdict([1.0, 2.0, 3.0], [2.0, 2.5, 4.0]) == UNDECIDED
    assert verdict([3.0, 3.0, 3.5], [2.0, 2.5, 3.0]) == UNDECIDED
    assert verdict([3.1, 4.0, 4.5], [2.0, 2.5, 3.0]) == LATER
    assert verdict([4.0], []) == FIRST
    assert verdict([], [4.0]) == LATER
    assert verdict([], []) == UNDECIDED


def test_a_seed_that_missed_the_target_is_later_than_all_that_did_not():
    runs = Runs(1.0, [outcome(10, 60), outcome(60, 60), outcome(10, 10)], {})
    seconds = seconds_to(runs, 35.0)
    assert sorted(seconds) == [1.0, 2.0, inf]
    assert cell(seconds) == "2.000 [1.000, -]"
    assert verdict(seconds, [3.0, 3.0]) == UNDECIDED
    assert verdict(seconds, [0.5, 0.6]) == LATER
    assert seconds_to(Runs(1.0, runs.outcomes[1:], {}), 35.0) == [], "half of them are not most"


def outcome(*values, diverged=False, name="P@1"):
    curve = [{"seconds": float(i + 1), "rows": 10 * (i + 1), name: value} for i, value in enumerate(values)]
    return Outcome([], [], [], curve, diverged, 1.0, 0.0)


def test_a_single_lucky_measurement_does_not_reach_the_target():
    assert NOISY_POINTS == 3
    assert point_at(outcome(10, 60, 10, 40, 50, 60), 50.0)["seconds"] == 6
    assert point_at(outcome(10, 20), 50.0) is None
    assert point_at(outcome(90, 90, diverged=True), 50.0) is None


def test_a_single_low_loss_does_not_reach_the_target():
    assert point_at(outcome(9, 9, 2, 9, 9, 6, 3, name="loss"), 6.0, LOSS)["seconds"] == 7
    assert point_at(outcome(2, 9, diverged=True, name="loss"), 6.0, LOSS) is None


def test_what_a_run_has_reached_at_its_end_is_the_mean_of_three_measurements():
    runs = Runs(1.0, [outcome(10, 40, 50, 90), outcome(90, diverged=True)], {})
    assert study.finals(runs) == [60, 0]
    assert study.finals(Runs(1.0, [outcome(9, 7, 5, 3, name="loss")], {}), LOSS) == [5]


def test_the_target_is_a_share_of_what_the_best_median_settled_at():
    runs = {"a": Runs(1.0, [outcome(40), outcome(9, 50, 60, 70), outcome(50)], {}), "b": Runs(1.0, [outcome(30)], {})}
    assert target(runs) == pytest.approx(0.95 * 50)
    assert target(runs, min) == pytest.approx(0.95 * 30)
    assert target({"a": Runs(1.0, [outcome(90, diverged=True)], {})}) == 0


def test_a_method_that_most_seeds_did_not_bring_there_has_no_time():
    runs = Runs(1.0, [outcome(1), outcome(2)], {})
    assert study.at_target([3.0], runs) == "-"
    assert study.at_target([3.0, 4.0], runs) == "3.5"
    assert study.at_target([0.0526, 0.0528], runs) == "0.0527"
    assert study.at_target([42_024.0, 42_024.0], runs) == "42,024"


def test_several_seeds_show_their_range():
    assert ranged([3.0, 1.0, 2.0]) == "2.00 [1.00, 3.00]"
    assert ranged([3.0]) == "3.00"


def test_a_method_may_train_for_more_epochs_than_the_others(monkeypatch, tmp_path):
    epochs = []

    def simulate(experiment, algorithm, fleet):
        epochs.append(experiment.schedule.epochs)
        return outcome(1)

    monkeypatch.setattr(study, "simulate", simulate)
    experiment = Experiment(Job(None, None), Schedule(2), None, None)
    made = study.Study(experiment, None, 16, (1.0,), 1, 1, tmp_path, "data")
    made.run([study.Method(f"{n}", lambda rate: Sequential(16, rate), [], epochs_factor=n) for n in (1, 4)])
    assert epochs == [2, 8]


def test_precision_is_told_by_how_frequent_the_labels_of_a_row_are():
    """Of six rows, each right or wrong; the most frequent label of a row counts."""
    counts, rows = [1, 1, 5, 5, 9, 9], [[0], [1, 0], [2], [3, 1], [4], [5, 2]]
    column = {label: label for label in range(6)}
    Y = indicator(np.repeat(np.arange(6), counts)[:, None].tolist(), column)
    held_out = Dataset(indicator([[i] for i in range(6)], column), indicator(rows, column))
    predicted = np.array([0, 5, 2, 3, 4, 0])

    class Answers(Measure):
        def __call__(self, flat):
            labels = predicted[self.rows.X.indices][:, None]
            return {"P@1": 100 * float(precision_at_k(self.rows.Y, labels, 1)[0])}

    found = ByFrequency(Answers(held_out, None, None), Y)(None)
    assert found == pytest.approx({"P@1": 400 / 6, "P@1 rare": 50, "P@1 middle": 100, "P@1 frequent": 50})


def tried_rates(monkeypatch, tmp_path, reached, rates=()):
    """The (rate, seed) of every run of a method, and what a study found; `reached` is a P@1 for each rate."""
    tried = []

    def simulate(experiment, algorithm, fleet):
        tried.append((algorithm.learning_rate, experiment.job.seed))
        return outcome(reached[algorithm.learning_rate])

    monkeypatch.setattr(study, "simulate", simulate)
    experiment = Experiment(Job(None, None), Schedule(1), None, None)
    made = study.Study(experiment, None, 16, (1.0, 3.0, 10.0), 3, 1, tmp_path, "data")
    return tried, made.run([study.Method("method", lambda rate: Sequential(16, rate), [], rates)])["method"]


def test_each_method_runs_at_its_best_rate_of_the_common_grid(monkeypatch, tmp_path):
    tried, found = tried_rates(monkeypatch, tmp_path, {1.0: 20, 3.0: 40, 10.0: 30})
    assert tried == [(1.0, 0), (3.0, 0), (10.0, 0), (3.0, 1), (3.0, 2)]
    assert found.rate == 3.0
    assert found.grid == {1.0: 20, 3.0: 40, 10.0: 30}
    assert len(found.outcomes) == 3


def test_a_rate_is_chosen_for_its_time_where_times_are_compared():
    tried = {1.0: outcome(10, 20, 60), 3.0: outcome(40, 50, 50), 10.0: outcome(90, 90, 90, diverged=True)}
    assert study.soonest_rate(tried, 40.0) == 3.0
    assert study.soonest_rate(tried, 80.0) == study.best_rate(tried) == 3.0, "1.0 was lucky at the end"


def test_a_rate_is_chosen_by_what_is_compared(monkeypatch, tmp_path):
    """By its loss where losses are compared, though the P@1 of another is higher; a diverged run is never the best."""
    losses = {1.0: 6.0, 3.0: 5.0, 10.0: 4.0, 30.0: 9.0}
    runs = {
        rate: Outcome([], [], [], [{"seconds": 1.0, "loss": loss, "P@1": loss}], rate == 10, 1.0, 0.0)
        for rate, loss in losses.items()
    }
    assert study.best_rate(runs) == 30.0
    assert study.best_rate(runs, LOSS) == 3.0
    monkeypatch.setattr(study, "simulate", lambda experiment, algorithm, fleet: runs[algorithm.learning_rate])
    made = study.Study(
        Experiment(Job(None, None), Schedule(1), None, None), None, 16, tuple(losses), 1, 1, tmp_path, ""
    )
    found = made.run([study.Method("method", lambda rate: Sequential(16, rate), [])], by=LOSS)["method"]
    assert found.rate == 3.0
    assert found.grid == {1.0: 6.0, 3.0: 5.0, 10.0: inf, 30.0: 9.0}
    assert study.as_json({"method": found})["method"]["grid"]["10"] is None, "JSON has no infinity"


@pytest.mark.parametrize(
    ("reached", "beyond"),
    [({1: 20, 3: 30, 10: 40, 30: 50, 90: 0}, [30, 90]), ({1: 30, 3: 20, 10: 0, 0.3: 40, 0.09: 39}, [0.3, 0.09]),
     ({1: 0, 3: 0, 10: 1, 30: 2, 90: 3, 300: 4, 1000: 5}, [30, 90, 300])],
)  # fmt: skip
def test_the_grid_goes_on_for_some_steps_while_its_best_rate_is_at_an_edge(monkeypatch, tmp_path, reached, beyond):
    tried, found = tried_rates(monkeypatch, tmp_path, reached)
    assert [rate for rate, seed in tried if seed == 0] == [1, 3, 10, *beyond]
    assert found.rate == max(found.grid, key=found.grid.get)
    assert list(found.grid) == sorted(found.grid)


def test_a_method_with_rates_of_its_own_goes_on_from_them_and_one_with_a_single_rate_keeps_it(monkeypatch, tmp_path):
    tried, _ = tried_rates(monkeypatch, tmp_path, {3.0: 20, 10.0: 30, 30.0: 25}, rates=(3.0, 10.0))
    assert tried == [(3.0, 0), (10.0, 0), (30.0, 0), (10.0, 1), (10.0, 2)]
    tried, _ = tried_rates(monkeypatch, tmp_path, {3.0: 20}, rates=(3.0,))
    assert tried == [(3.0, seed) for seed in range(3)]
