"""Runs on a simulated clock, side by side, and the command line that shows them."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest

from shared.paths import DATA
from xmlsgd.algorithms import algorithm_names
from xmlsgd.algorithms.adaptive import AdaptiveSGD
from xmlsgd.algorithms.crossbow import Crossbow
from xmlsgd.algorithms.elastic import Elastic
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.cli import main
from xmlsgd.cli.commands.simulate import COLUMNS, algorithm_on
from xmlsgd.cli.results import aligned, significant, table
from xmlsgd.data.synthetic import make_xmc, split_rows
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError
from xmlsgd.metrics import precision_at_k
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD, Adam
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.scenarios import scenario
from xmlsgd.training.executors.virtual_device import VirtualDevice, fastest
from xmlsgd.training.job import Job
from xmlsgd.training.simulation import Experiment, simulate

FLEET = [VirtualDevice(0.0, 1e-3, speed=speed) for speed in (1.0, 0.5)]


def setting_of(n_rows, n_features, n_labels, optimizer, schedule, points):
    """A experiment of synthetic rows, a fifth of them measured."""
    data = make_xmc(n_rows, n_features, n_labels, nnz_per_row=8, labels_per_row=1.5, random_state=0)
    train, test = split_rows(data)
    network, device = Network(n_features, n_labels, (8,)), Reference()

    def measure(flat):
        layers = network.layers(flat)
        A = network.hidden_activations(device, layers, test.X, np.arange(test.n_rows))
        labels, _ = device.top_k(A, layers[-1], 1)
        return {"P@1": 100 * float(precision_at_k(test.Y, labels, 1)[0])}

    return Experiment(Job(train, network, optimizer), schedule, device, measure, points)


@pytest.fixture(scope="module")
def experiment():
    return setting_of(300, 60, 12, Adam(), Schedule(2), points=3)


def test_a_run_is_measured_in_the_course_of_its_epochs_and_after_each(experiment):
    outcome = simulate(experiment, Hogwild(10, 0.02), FLEET)
    seconds = [point["seconds"] for point in outcome.curve]
    assert seconds == sorted(seconds)
    assert len(outcome.curve) == 6
    assert [point["P@1"] for point in outcome.curve[2::3]] == [record["P@1"] for record in outcome.records]
    assert outcome.curve[2]["rows"] == 240
    assert outcome.final() == outcome.curve[-1]["P@1"]


def test_the_time_to_a_measure_is_when_it_was_first_reached(experiment):
    outcome = simulate(experiment, Hogwild(10, 0.02), FLEET)
    assert outcome.seconds_to(0.0) == outcome.curve[0]["seconds"]
    assert outcome.seconds_to(101.0) is None


def test_two_runs_of_a_setting_are_the_same_to_the_last_digit(experiment):
    fleet = [VirtualDevice(1e-3, 1e-3, noise=0.2, stalls=(0.1, 5.0)) for _ in range(3)]
    first, second = (simulate(experiment, AdaptiveSGD(10, 0.02, mega_batch=80), fleet) for _ in range(2))
    assert (first.curve, first.records, first.workers) == (second.curve, second.records, second.workers)


def test_a_shared_model_keeps_its_devices_busy(experiment):
    outcome = simulate(experiment, Hogwild(10, 0.02), FLEET)
    assert outcome.rows_per_second == pytest.approx(1500, rel=0.1)
    assert 0.9 < outcome.efficiency <= 1
    assert 0.9 < outcome.utilisation <= 1
    assert 0 < outcome.sync_share < 1e-3


def test_the_merges_of_one_learner_with_itself_take_their_time(experiment):
    """Its device computes or merges, and does nothing else."""
    outcome = simulate(dataclasses.replace(experiment, bandwidth=2e6), Crossbow(10, 0.02, sync_every=1), FLEET[:1])
    assert outcome.sync_share > 0.1
    assert outcome.sync_share == pytest.approx(1 - outcome.efficiency, abs=1e-3)


def test_the_fastest_device_alone_is_the_fastest(experiment):
    outcome = simulate(experiment, Sequential(10, 0.02), [fastest(FLEET[::-1])])
    assert [device.speed for device in outcome.fleet] == [1.0]
    assert outcome.rows_per_second == pytest.approx(1000, rel=1e-3)
    assert outcome.utilisation == 1
    assert outcome.efficiency == pytest.approx(1, abs=1e-3)


def test_waiting_for_the_slowest_device_lowers_the_efficiency(experiment):
    """Shares given out beforehand against batches for whoever is free."""
    fleet = [VirtualDevice(0.0, 1e-3, speed=speed) for speed in (1.0, 1.0, 0.5, 0.25)]
    static, dynamic = (
        simulate(experiment, algorithm, fleet)
        for algorithm in (Elastic(5, 0.02, mega_batch=120), AdaptiveSGD(5, 0.02, mega_batch=120))
    )
    assert static.efficiency < 0.5
    assert dynamic.efficiency > 0.75
    assert dynamic.seconds < 0.7 * static.seconds


def elastic_and_adaptive(experiment, name, momentum, seed):
    """The runs of both on a scenario, with one rate and merges after as many rows."""
    fleet, experiment = (
        scenario(name, VirtualDevice(0.0, 1e-3), experiment.rows, experiment.nnz, 8),
        dataclasses.replace(experiment, job=dataclasses.replace(experiment.job, seed=seed)),
    )
    algorithms = Elastic(8, 1.0, mega_batch=120), AdaptiveSGD(8, 1.0, mega_batch=120, momentum=momentum)
    return [simulate(experiment, algorithm, fleet) for algorithm in algorithms]


@pytest.mark.slow
def test_on_unequal_devices_adaptive_sgd_is_there_in_half_the_time_and_on_equal_ones_nothing_is_lost():
    """Time to a P@1 on S3, for every seed; on S1, without momentum, P@1 differs by no more than seeds do."""
    experiment = setting_of(900, 80, 16, SGD(), Schedule(3, "constant"), points=8)
    for seed in range(2):
        elastic, adaptive = elastic_and_adaptive(experiment, "S3", None, seed)
        goal = 0.9 * max(elastic.final(), adaptive.final())
        assert adaptive.seconds_to(goal) < 0.5 * (elastic.seconds_to(goal) or elastic.seconds)
    elastic, adaptive = zip(*(elastic_and_adaptive(experiment, "S1", 0.0, seed) for seed in range(3)), strict=True)
    finals = [[run.final() for run in runs] for runs in (elastic, adaptive)]
    assert abs(np.median(finals[0]) - np.median(finals[1])) <= max(map(np.ptp, finals))


def test_a_run_that_diverges_says_so(experiment):
    wild = dataclasses.replace(experiment, job=dataclasses.replace(experiment.job, optimizer=SGD()))
    with np.errstate(all="ignore"):
        outcome = simulate(wild, Hogwild(10, 1e30), FLEET)
    assert outcome.diverged
    assert outcome.final() == 0


def test_numbers_outside_their_ranges_are_refused(experiment):
    for wrong in ({"points": 0}, {"bandwidth": 0.0}, {"bandwidth": float("nan")}):
        with pytest.raises(DataError, match=r"(points|bandwidth) must be "):
            dataclasses.replace(experiment, **wrong)


def test_numbers_too_wide_for_their_column_widen_it():
    lines = aligned(["a", "bb"], ["rows/s", "cost"], [["1,234,567,890", "0.1"], ["-", "2"]]).splitlines()
    assert lines == ["           rows/s     cost", "a   1,234,567,890      0.1", "bb              -        2"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.00128, "0.00128"), (0.9996, "1.000"), (45.2, "45.2"), (313.0, "313"), (1234567.8, "1,234,568"),
     (-85.21, "-85.2"), (1e-9, "1.00e-09"), (float("nan"), "nan")],
)  # fmt: skip
def test_a_number_has_the_digits_that_its_magnitude_asks_for(value, text):
    assert significant(value) == text


@pytest.mark.parametrize("scale", [1e-7, 1e-3, 1.0, 1e4, 1e9, 1e13])
def test_columns_of_a_comparison_never_meet_whatever_their_numbers(scale):
    row = dict.fromkeys(COLUMNS, scale * 123456.789)
    text = table({"adaptive": row, "the longest of all names": {**row, "to 95 %": None}}, COLUMNS)
    header, *lines = text.split("\n")
    names = [re.split(r"  +", line)[0] for line in lines]
    assert names == ["adaptive", "the longest of all names"]
    assert re.split(r"  +", header.strip()) == list(COLUMNS)
    for line in lines:
        assert len(re.split(r"  +", line)) == 1 + len(COLUMNS)
    assert len({len(line) for line in lines}) == 1


def test_the_automatic_choice_is_told_whether_all_devices_write_one_memory():
    apart, near = VirtualDevice(0.0, 1e-3), VirtualDevice(0.0, 1e-3, in_place=True)
    for fleet, kind in (([apart] * 2, LocalSGD), ([apart, near], LocalSGD), ([near] * 2, Hogwild)):
        algorithm = algorithm_on("auto", 10, 0.1, fleet)
        assert type(algorithm) is kind


SMALL = ["--rows", "400", "--hidden", "16", "--epochs", "1", "--threads", "1", "--points", "1", "--quiet"]


def run(tmp_path, *words):
    """Return the JSON of a simulation of the sample."""
    file = tmp_path / "result.json"
    assert main(["simulate", str(DATA), *SMALL, "--json", str(file), *words]) == 0
    return json.loads(file.read_text())


def test_the_command_line_tells_what_a_fleet_would_give(tmp_path, capsys):
    words = [word for word in SMALL if word != "--quiet"]
    assert main(["simulate", str(DATA), *words, "--fleet", "gpu:1,cpu:.1"]) == 0
    shown = capsys.readouterr().out
    for part in ("speed 1:", "400 rows", "gpu 0", "cpu 1", "busy %", "scheduling efficiency"):
        assert part in shown


def test_a_comparison_of_all_algorithms_is_one_table(tmp_path, capsys):
    words = [word for word in SMALL if word != "--quiet"]
    assert main(["simulate", str(DATA), *words, "--fleet", "s3", "--compare", "all"]) == 0
    data, fleet, speed, _, note, header, *rows = capsys.readouterr().out.splitlines()
    assert data.startswith(f"{DATA}: 400 rows, ")
    assert fleet == "fleet s3, batches of 32 rows, learning rate 0.014"
    assert speed.startswith("speed 1:")
    assert note.startswith("P@1 is of the network alone")
    assert header.split()[:2] == ["P@1", "seconds"]
    *rows, last = rows
    assert [row.split("  ")[0] for row in rows] == ["auto", *algorithm_names(), "fastest alone"]
    assert last.startswith("auto: algorithm: LocalSGD; workers have memories of their own")


@pytest.mark.slow
def test_a_simulation_trains_the_labels_that_training_would(tmp_path, capsys):
    short = run(tmp_path, "--negatives", "8", "--candidates", "4")
    assert short["parameters"]["negatives"] == 8
    few, every = (found["runs"]["adaptive"]["records"][-1]["loss"] for found in (short, run(tmp_path)))
    assert few < every
    words = [word for word in SMALL if word != "--quiet"]
    assert main(["simulate", str(DATA), *words, "--candidates", "4"]) == 0
    assert "P@1 is of the network alone" in capsys.readouterr().out


def test_a_simulation_reads_dense_features_as_training_would(tmp_path, capsys):
    rng, lines = np.random.default_rng(0), ["200 40 4"]
    for label in rng.integers(0, 4, 200):
        values = rng.standard_normal(40) + 2 * (np.arange(40) % 4 == label)
        lines.append(f"{label} " + " ".join(f"{feature}:{value:.4f}" for feature, value in enumerate(values)))
    rows, json_file = tmp_path / "rows.txt", tmp_path / "result.json"
    rows.write_text("\n".join(lines) + "\n")
    words = ("--hidden", "8", "--epochs", "4", "--fleet", "gpu:1", "--json", str(json_file))
    assert main(["simulate", str(rows), *words]) == 0
    result = json.loads(json_file.read_text())
    assert result["plan"]["landmarks"]["value"] == 160
    assert result["data"]["train"]["features"] == 40
    capsys.readouterr()


def test_the_json_of_a_simulation_has_fleet_runs_and_versions(tmp_path):
    found = run(tmp_path, "--fleet", "gpu:1*2,cpu:.1", "--compare", "adaptive,elastic")
    assert [device["name"] for device in found["fleet"]] == ["gpu 0", "gpu 1", "cpu 2"]
    assert set(found["runs"]) == {"adaptive", "elastic", "fastest alone"}
    assert len(found["runs"]["adaptive"]["workers"]) == 3
    assert found["versions"]["xmlsgd"]


def test_the_json_of_a_simulation_has_all_that_it_takes_to_repeat_it(tmp_path):
    costs = ["1e-3", "0", "1e-8"]
    found = run(tmp_path, "--fleet", "cpu:1*2", "--algorithm", "auto", "--costs", *costs, "--seed", "3")
    assert found["setting"] == {
        "fleet": "cpu:1*2", "costs": [1e-3, 0, 1e-8], "bandwidth": 20, "points": 1, "seed": 3,
    }  # fmt: skip
    assert found["files"] == {"train": str(DATA), "test": None}
    assert (found["data"]["train"]["rows"], found["data"]["test"]["rows"]) == (400, 333)
    plan = {name: decision["value"] for name, decision in found["plan"].items()}
    assert (plan["batch_size"], plan["learning_rate_init"], plan["max_epochs"]) == (32, 0.014, 1)
    algorithm = found["runs"]["auto"]["algorithm"]
    assert algorithm == {"class": "Hogwild", "batch": 32, "learning_rate": 0.014, "copies": False}


def test_the_costs_that_are_printed_repeat_a_run(tmp_path, capsys):
    words = [word for word in SMALL if word != "--quiet"]
    words = ["simulate", str(DATA), *words, "--fleet", "S3", "--compare", "adaptive,hogwild", "--seed", "0"]
    shown, costs = [], []
    for _ in range(2):
        assert main([*words, *costs]) == 0
        shown.append(capsys.readouterr().out)
        costs = re.search(r"--costs (\S+ \S+ \S+)$", shown[-1], re.MULTILINE)[0].split()
    assert shown[0] == shown[1]
    other = run(tmp_path, "--costs", "0.001", "0", "2e-8")
    assert [other["speed_one"][name] for name in ("overhead", "per_row", "per_nnz")] == [0.001, 0, 2e-8]


def test_a_comparison_says_which_runs_diverged(tmp_path, capsys):
    words = [word for word in SMALL if word != "--quiet"]
    words += ["--lr", "1e38", "--optimizer", "sgd", "--compare", " adaptive , synchronous"]
    assert main(["simulate", str(DATA), *words]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    assert "adaptive, synchronous, fastest alone: the loss was not finite" in last
    assert [re.split("  +", line)[3] for line in table[-3:]] == ["-"] * 3


def test_nothing_is_drawn_if_all_runs_diverged(tmp_path, capsys):
    plot = tmp_path / "curves.png"
    words = [word for word in SMALL if word != "--quiet"]
    assert main(["simulate", str(DATA), *words, "--lr", "1e38", "--optimizer", "sgd", "--plot", str(plot)]) == 0
    assert f"--plot {plot}: nothing to draw, as the loss of every run was not finite" in capsys.readouterr().err
    assert not plot.exists()


def test_a_simulation_is_drawn_where_a_file_is_asked_for(tmp_path):
    pytest.importorskip("matplotlib")
    run(tmp_path, "--plot", str(tmp_path / "curves.png"))
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ["--fleet", "gpu"],
            "--fleet: must be a scenario, one of S1, S2, S3, S4, S5, S6, S7, S8, or NAME:SPEED, as in",
        ),
        (["--fleet", "gpu:0"], "fleet: 'gpu:0': speed must be in [1e-09, 1e+09], got 0.0"),
        (["--fleet", "gpu:-1"], "speed must be in [1e-09, 1e+09]"),
        (["--fleet", "gpu:1e-320"], "speed must be in"),
        (["--fleet", "gpu:nan"], "speed must be a number"),
        (["--fleet", "gpu:fast"], "speed must be a number, got 'gpu:fast'"),
        (["--fleet", "gpu:1/noise=.1"], "speed must be a number, got 'gpu:1/noise=.1'"),
        (["--compare", "adaptive,magic"], "algorithm must be one of"),
        (["--algorithm", "magic"], "algorithm must be one of"),
        (["--rows", "0"], "argument --rows: must be a whole number of at least 1, got '0'"),
        (["--points", "0"], "argument --points: must be a whole number of at least 1, got '0'"),
        (["--bandwidth", "-1"], "--bandwidth: must be a finite number above 0, got '-1'"),
        (["--bandwidth", "inf"], "--bandwidth: must be a finite number above 0, got 'inf'"),
        (["--costs", "-1", "0", "0"], "--costs: overhead must be in [0, 1e+06], got -1.0"),
        (["--costs", "0", "0", "0"], "--costs: overhead, per_row and per_nnz must not all be 0"),
        (["--costs", "0.001"], "argument --costs: expected 3 arguments"),
        (["--plot", "curves.foo"], "curves.foo: must end in one of"),
        (["--plot", "/nowhere/curves.png"], "does not exist"),
    ],
)
def test_what_cannot_be_simulated_is_one_line(words, complaint, capsys):
    assert main(["simulate", str(DATA), *SMALL, *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line
