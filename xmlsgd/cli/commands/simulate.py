"""Simulate training on other devices: P@1 over time, and how busy each device is.

DATA is any source that train reads. The arithmetic is real; only the clock is simulated. A device of speed 1 is as fast
as this machine, whose steps are timed first. The --costs that are found are printed: passed with the same --seed, they
repeat the run. Without a test split, a fifth of the rows are test rows.

A fleet is a list of NAME:SPEED[*COUNT], separated by commas, as in "gpu:1*2,cpu:.1"; or one of the scenarios S1 to S8,
which have noise, stalls, slowdowns and absences (docs/papers.md lists them). Devices named cpu write a shared model in
place. All others pull copies of it and push their changes, which takes time by --bandwidth, as merges do.

Columns of the tables:
  P@1        precision at 1 on the test rows, in percent
  seconds    simulated seconds until the end
  to 95 %    simulated seconds until 95 % of the best final P@1 in the table was reached, be it that of the fastest
             device alone; - if it never was, as may be after few epochs
  rows/s     training rows per simulated second
  busy %     share of its time in which a device computes
  effic. %   rows/s in percent of what all devices could do without waiting
  sync %     share of the time spent on merges and transfers
  loss       mean loss per row since the row above
  speed      of the device; this machine has speed 1
  rows %     share of the training rows
  updates %  share of the updates
  batch      rows per step at the end
  contribution % share of the throughput that would be lost without the device
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ...errors import DataError, problems_named, suggest, warn
from ..flags import COUNT, FILE, FLOAT, FORMAT_FLAGS, JSON_FILE, NAME, PATH, Flag, number, positional
from ..input_options import InputOptions
from ..machine import versions
from ..messages import Console
from ..parameters import parameter_flags
from ..results import SIGNIFICANT, significant, size_numbers, size_text, table, write_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ...algorithms.base import Algorithm
    from ...data.csr import Dataset
    from ...estimators.plan import TrainingPlan
    from ...estimators.training_data import TrainingData
    from ...training.executors.virtual_device import VirtualDevice
    from ...training.simulation import Experiment, Outcome

REACHED = 0.95  # share of the best final P@1 of a comparison
DIVERGED = "the loss was not finite; pass a lower --learning-rate-init"
# Columns of tables, and formats of their numbers.
COLUMNS = {
    "P@1": ".2f", "seconds": SIGNIFICANT, "to 95 %": SIGNIFICANT, "rows/s": SIGNIFICANT, "busy %": ".0f",
    "effic. %": ".0f", "sync %": ".1f",
}  # fmt: skip
CURVE_COLUMNS = {"seconds": SIGNIFICANT, "P@1": ".2f", "loss": ".4g"}
DEVICE_COLUMNS = {
    "speed": "g", "rows %": ".1f", "updates %": ".1f", "busy %": ".0f", "batch": ".0f", "contribution %": ",.0f",
}  # fmt: skip
FLAGS = (
    positional("train", PATH, "DATA", "rows to learn from"),
    Flag("test", PATH, "rows to measure on", "data", default_text="the test split of DATA, or a fifth of its rows"),
    Flag("rows", COUNT, "training rows, at most", "data", 10_000),
    *FORMAT_FLAGS,
    *parameter_flags(
        "hidden_layer_sizes", "loss", "optimizer", "learning_rate_init", "learning_rate", "warm_up", "batch_size",
        "max_epochs", "sampler", "negatives", "candidates", "weight_decay", "clip_norm", "hidden_dropout",
        "gradient_rounding", "precision", "n_jobs", "random_state",
    ),
    *(replace(flag, default="adaptive", only_if_given=False) for flag in parameter_flags("algorithm")),
    Flag("fleet", NAME, "the devices: a scenario, or NAME:SPEED,...", "workers", "S2", metavar="FLEET"),
    Flag("compare", NAME, "in place of --algorithm: several, or all", "workers", metavar="NAME,..."),
    Flag("costs", FLOAT, "seconds of a device of speed 1 for an update, a row and a stored feature", "workers",
         default_text="those of this machine, timed anew", metavar="UPDATE ROW FEATURE", n_values=3),
    Flag("bandwidth", number("a finite number above 0", lambda rate: 0 < rate < math.inf),
         "GB per second of merges and transfers", "workers", 20.0),
    Flag("points", COUNT, "measurements per epoch", "output", 4),
    Flag("plot", FILE, "draw P@1 over time (needs matplotlib)", "output"),
    JSON_FILE,
)  # fmt: skip
EXAMPLES = """  xmlsgd simulate train.txt --fleet "gpu:1*2,cpu:.1"
  xmlsgd simulate train.txt --fleet S3 --compare adaptive,synchronous --plot curves.png"""
TEST_ROWS = 2000  # most test rows: evaluating more of them several times per epoch would take longer than training
ALONE = "fastest alone"
OUTCOME_FIELDS = ("diverged", "curve", "workers", "records")  # attributes of an outcome that are written as JSON


def run(
    train: str,
    test: str | None,
    rows: int,
    input_options: InputOptions,
    parameters: dict[str, Any],
    fleet: str,
    compare: str | None,
    costs: list[float] | None,
    bandwidth: float,
    points: int,
    plot: str | None,
    console: Console,
) -> None:
    """Read the rows, time this machine, train on the simulated clock and show the results."""
    input_options.check_inputs(train, test)
    from ..training_runs import compile_kernels

    if plot is not None:
        from ...training.plots import check_suffix

        check_suffix(plot)
    with problems_named("--costs"):
        base = device_of(costs) if costs else None
    # Both raise errors before anything is read.
    algorithms = algorithms_of(parameters["algorithm"], compare, devices_of(fleet, base))
    plan, data = make_plan_of(train, test, rows, input_options, parameters)
    compile_kernels(parameters, data.all_rows.n_labels, compact=False)
    raced = [*algorithms, ALONE] if compare else algorithms
    seed = parameters.get("random_state", 0)
    experiment = experiment_of(plan, data, seed, points, 1e9 * bandwidth)
    race = run_race(experiment, plan, fleet, raced, console, base)
    console.show(f"{train}: {size_text(data.all_rows)}")
    console.show(f"fleet {fleet}, batches of {plan.batch_size} rows, learning rate {plan.learning_rate:g}")
    repeated = " ".join(map(str, costs_of(race.base)))
    console.show(f"speed 1: {1000 * race.update_seconds:.2f} ms an update of a batch, --costs {repeated}")
    console.show("seconds are simulated; --help explains the columns")
    if plan.n_candidates:
        console.show("P@1 is of the network alone: its candidates are trained afterwards, by one process")
    lines = describe_comparison(race.outcomes) if compare else describe_outcome(race.outcomes[algorithms[0]])
    for line in lines:
        console.answer(line)
    setting = {"fleet": fleet, "costs": costs_of(race.base), "bandwidth": bandwidth, "points": points, "seed": seed}
    files = {"train": train, "test": test}
    write_json(console.json, {"setting": setting, "files": files} | results(parameters, plan, data, race))
    curves = {name: [outcome.curve] for name, outcome in race.outcomes.items() if outcome.curve}
    if plot is not None and not curves:
        warn(f"--plot {plot}: nothing to draw, as the loss of every run was not finite")
    elif plot is not None:
        from ...training.plots import plot_over_time

        plot_over_time(curves, plot, title=f"{fleet}, simulated")


@dataclass(frozen=True)
class Race:
    """Outcomes of algorithms, by name, on the same fleet.

    settings : the class and the fields of each algorithm. base : the device of speed 1. update_seconds : duration of an
    update on it.
    """

    outcomes: dict[str, Outcome]
    settings: dict[str, dict[str, Any]]
    fleet: list[VirtualDevice]
    base: VirtualDevice
    update_seconds: float


def experiment_of(plan: TrainingPlan, data: TrainingData, seed: int, points: int, bandwidth: float) -> Experiment:
    """Return what all algorithms share; points : measurements per epoch. bandwidth : bytes per second."""
    from ...estimators.inference import Measure
    from ...training.simulation import Experiment

    rows = data.transformed(plan.features, plan.n_threads)
    assert rows.validation is not None
    device = plan.new_device()
    measure = Measure(rows.validation, plan.network, device)
    return Experiment(plan.job(rows.all_rows, seed), plan.schedule, device, measure, points, bandwidth)


def device_of(costs: Iterable[float]) -> VirtualDevice:
    """Return the device of speed 1 with these seconds for an update, a row and a stored feature."""
    from ...training.executors.virtual_device import VirtualDevice

    overhead, per_row, per_nnz = costs
    return VirtualDevice(overhead, per_row, per_nnz)


def costs_of(device: VirtualDevice) -> tuple[float, float, float]:
    """Return the argument of `device_of`."""
    return device.overhead, device.per_row, device.per_nnz


def run_race(
    experiment: Experiment, plan: TrainingPlan, fleet: str, algorithms: Sequence[str], console: Console,
    base: VirtualDevice | None = None,
) -> Race:  # fmt: skip
    """Train with each algorithm on the simulated clock.

    algorithms : names; `ALONE` is plain SGD on the fastest device. base : the device of speed 1; None for this machine,
    which is timed.
    """
    from ...training.executors.virtual_device import fastest, measure_device
    from ...training.simulation import simulate

    rate, batch = plan.learning_rate, plan.batch_size
    outcomes: dict[str, Outcome] = {}
    settings: dict[str, dict[str, Any]] = {}
    with experiment.device.start():
        if base is None:  # rounded, so that the costs that are printed repeat the run
            timed = measure_device(experiment.job, experiment.device)
            base = device_of(float(f"{cost:.3g}") for cost in costs_of(timed))
        devices = devices_of(fleet, base, experiment.rows, experiment.nnz, batch)
        for name in algorithms:
            console.note(f"{name} ...")
            used = [fastest(devices)] if name == ALONE else devices
            algorithm = algorithm_on("sequential" if name == ALONE else name, batch, rate, used)
            settings[name] = {"class": type(algorithm).__name__, **asdict(algorithm)}
            outcomes[name] = simulate(experiment, algorithm, used)
    return Race(outcomes, settings, devices, base, batch * base.row_seconds(0.0, batch, experiment.nnz))


def make_plan_of(
    train: str, test: str | None, most: int, options: InputOptions, parameters: dict[str, Any]
) -> tuple[TrainingPlan, TrainingData]:
    """Return the training plan for the flags, and the data with at most `most` training rows."""
    from ...data.synthetic import split_rows
    from ...estimators import XMLClassifier
    from ...estimators.parameters import check_parameters
    from ...estimators.training_data import GivenRows
    from ..sources import first_labels, read_training

    model = XMLClassifier(**parameters)
    check_parameters(model)
    found = read_training(train, test, options)
    rows, test_rows = (found.train, found.test) if found.test is not None else split_rows(found.train)
    rows, test_rows = sample_rows(rows, most), sample_rows(test_rows, TEST_ROWS)
    eval_set = test_rows.X, first_labels(test_rows.Y, rows.n_labels)
    return model._planned(model._read_rows(GivenRows(rows.X, rows.Y, eval_set=eval_set)))


def sample_rows(dataset: Dataset, most: int) -> Dataset:
    """Return at most `most` rows, drawn at random, as files are often sorted."""
    import numpy as np

    if dataset.n_rows <= most:
        return dataset
    rows = np.sort(np.random.default_rng(0).permutation(dataset.n_rows)[:most])
    return dataset.take(rows)


def algorithms_of(algorithm: str, compare: str | None, fleet: Sequence[VirtualDevice]) -> list[str]:
    """Return the names of the algorithms to run; raise `DataError` for unknown ones and options that do not suit."""
    from ...algorithms import ANY_BATCH, algorithm_names

    if compare == "all":
        return ["auto", *algorithm_names()]
    names = [name.strip() for name in compare.split(",")] if compare else [algorithm]
    for name in names:
        algorithm_on(name, ANY_BATCH, 1.0, fleet)
    return names


def algorithm_on(name: str, batch: int, rate: float, fleet: Sequence[VirtualDevice]) -> Algorithm:
    """Return the algorithm of a name; "auto" depends on the number of devices, and whether all write in place."""
    from ...algorithms import get_algorithm

    found = get_algorithm(name, batch, rate, len(fleet), all(device.in_place for device in fleet))
    found.check_devices([device.name for device in fleet])
    return found


def devices_of(
    fleet: str, base: VirtualDevice | None = None, n_rows: int = 1, nnz: float = 1.0, batch: int = 1
) -> list[VirtualDevice]:
    """Return the devices of a fleet, a scenario or a list; `base` is the device of speed 1."""
    from ...training.executors.scenarios import SCENARIOS, parse_fleet, scenario
    from ...training.executors.virtual_device import VirtualDevice

    if fleet.upper() in SCENARIOS:
        return scenario(fleet.upper(), base or VirtualDevice(), n_rows, nnz, batch)
    if ":" not in fleet:
        known = f"a scenario, one of {', '.join(SCENARIOS)}, or NAME:SPEED, as in gpu:1*2,cpu:.1"
        raise DataError(f"--fleet: must be {known}, got {fleet!r}{suggest(fleet, SCENARIOS)}")
    return parse_fleet(fleet, base or VirtualDevice())


def results(parameters: dict[str, Any], plan: TrainingPlan, data: TrainingData, race: Race) -> dict[str, Any]:
    """Return all results for JSON."""
    assert data.validation is not None
    replaced = ("devices", "algorithm")  # by the fleet and the algorithms of the runs
    return {
        "fleet": [asdict(device) for device in race.fleet],
        "speed_one": asdict(race.base),
        "runs": {
            name: {
                "algorithm": race.settings[name],
                **summarize(outcome, race.outcomes),
                **{field: getattr(outcome, field) for field in OUTCOME_FIELDS},
            }
            for name, outcome in race.outcomes.items()
        },
        "parameters": parameters,
        "plan": {name: decision for name, decision in plan.to_dict().items() if name not in replaced},
        "data": {"train": size_numbers(data.all_rows), "test": size_numbers(data.validation)},
        "versions": versions(),
    }


def summarize(outcome: Outcome, outcomes: Mapping[str, Outcome]) -> dict[str, float | None]:
    """Return an outcome's row of a comparison."""
    target = REACHED * max(other.final() for other in outcomes.values())
    return {
        "P@1": outcome.final(),
        "seconds": outcome.seconds,
        "to 95 %": None if outcome.diverged else outcome.seconds_to(target),
        "rows/s": outcome.rows_per_second,
        "busy %": 100 * outcome.utilisation,
        "effic. %": 100 * outcome.efficiency,
        "sync %": 100 * outcome.sync_share,
    }


def describe_comparison(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Return a table with a row for each algorithm, and lines on those that diverged and on what "auto" chose."""
    from ...training.worker_log import describe_choice

    lines = [table({name: summarize(outcome, outcomes) for name, outcome in outcomes.items()}, COLUMNS)]
    if diverged := [name for name, outcome in outcomes.items() if outcome.diverged]:
        lines.append(f"{', '.join(diverged)}: {DIVERGED}")
    return lines + [
        f"{name}: {line}" for name, outcome in outcomes.items() for line in describe_choice(outcome.records)
    ]


def describe_outcome(outcome: Outcome) -> list[str]:
    """Return a table of P@1 over time, one of the devices, and lines about the whole run."""
    from ...training.worker_log import advice, describe_choice

    found = [table({f"{point['rows']:>12,} rows": point for point in outcome.curve}, CURVE_COLUMNS), ""]
    if outcome.workers:
        devices = {outcome.fleet[entry["worker"]].name: summarize_device(outcome, entry) for entry in outcome.workers}
        found += [table(devices, DEVICE_COLUMNS), ""]
    found.append(
        f"{significant(outcome.rows_per_second)} rows/s; scheduling efficiency {100 * outcome.efficiency:.0f} %, "
        f"merges and transfers {100 * outcome.sync_share:.1f} % of the time"
    )
    if outcome.diverged:
        return [*found, DIVERGED]
    return found + describe_choice(outcome.records) + advice(outcome.workers)


def summarize_device(outcome: Outcome, entry: Mapping[str, Any]) -> dict[str, float | None]:
    """Return a worker's row of the table of devices: its speed, shares of the work, size of its last batches."""
    rows, updates = (max(sum(other[name] for other in outcome.workers), 1) for name in ("rows", "updates"))
    last: Mapping[str, Any] = next((e for e in outcome.records[-1]["workers"] if e["worker"] == entry["worker"]), {})
    return {
        "speed": outcome.fleet[entry["worker"]].speed,
        "rows %": 100 * entry["rows"] / rows,
        "updates %": 100 * entry["updates"] / updates,
        "busy %": 100 * entry["utilisation"],
        "batch": last.get("batch"),
        "contribution %": 100 * entry["contribution"],
    }
