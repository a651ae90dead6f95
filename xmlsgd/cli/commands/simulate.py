"""What would this fleet give me? Train on simulated devices: P@1 over time, who is busy, what it costs.

DATA is what `train` takes. The arithmetic is real, only the clock is simulated: a device of speed 1 is as fast as this
machine, whose steps are timed first. Without a test part a fifth of the rows is held out.

A fleet is NAME:SPEED[*COUNT][/OPTION=VALUE]... with commas between, as in "gpu:1*2/price=3,cpu:.1/noise=.05", or one of
the scenarios S1 to S8. Options: price (money an hour), noise, stalls=SHARExFACTOR, absent=FROM-TO (seconds),
trace=FROM:SPEED, overhead (seconds an update), in_place=1. Merges take time by --bandwidth, and so do copies of a
shared model and the changes to it that devices send, but for those that write it in place.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...errors import DataError, suggest
from ..failures import UsageError
from ..format_options import add_source_arguments
from ..kernels import prepare_kernels
from ..machine import versions
from ..outputs import check_file, check_there
from ..parameters import add_parameters, given_parameters, number, place, whole
from ..reports import COLUMNS, DIVERGED, describe_outcome, describe_prices, describe_timing, format_table, summarize
from ..results import answer, note, show, write_json

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping, Sequence

    from ...algorithms.base import Algorithm
    from ...data.csr import Dataset
    from ...estimators.task import Task
    from ...training.executors.costs import VirtualDevice
    from ...training.simulation import Outcome, Setting

FLAGS = (
    "hidden_layer_sizes", "loss", "optimizer", "learning_rate_init", "learning_rate", "warm_up", "batch_size",
    "max_epochs", "negatives", "candidates", "weight_decay", "clip_norm", "input_dropout", "hidden_dropout",
    "gradient_rounding", "algorithm", "precision", "n_jobs", "random_state",
)  # fmt: skip
TEST_ROWS = 2000  # measured some times an epoch: more would take longer than training
ALONE = "fastest alone"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of the verb."""
    parser.add_argument("train", type=place, metavar="DATA", help="what to learn from")
    parser.add_argument("--test", type=place, metavar="TEST", help="rows to measure on")
    parser.add_argument("--fleet", type=place, default="S2", metavar="FLEET", help="devices, or S1 to S8 (default S2)")
    parser.add_argument("--compare", type=place, metavar="NAMES", help="algorithms with commas between, or all")
    parser.add_argument("--rows", type=whole, default=10_000, help="training rows at most (default 10000)")
    parser.add_argument("--points", type=whole, default=4, help="measurements an epoch (default 4)")
    parser.add_argument("--bandwidth", type=number, default=20, help="GB a second of merges and transfers (default 20)")
    parser.add_argument("--json", type=place, metavar="FILE", help="write the results as JSON, - for stdout")
    parser.add_argument("--plot", type=place, metavar="FILE", help="draw P@1 over time (needs matplotlib)")
    add_source_arguments(parser)
    add_parameters(parser, FLAGS, algorithm="adaptive")


def run(args: Namespace) -> None:
    """Read, time this machine, train on the simulated clock, show."""
    check_file(args.json, "--json", args.train, args.test)
    check_file(args.plot, "--plot", args.train, args.test)
    check_there(args.train, args.test)
    check_numbers(args)
    from ...algorithms import get_algorithm
    from ...estimators.fitting import rate_of
    from ...training.executors.calibration import measure_device
    from ...training.simulation import fastest_alone, simulate
    from ...training.worker_log import choice

    model, task = prepared(args)
    setting = setting_of(args, model, task)
    prepare_kernels(model.get_params(), task.dataset.n_labels)
    rate = rate_of(model, task.optimizer)
    outcomes: dict[str, Outcome] = {}
    with task.device.start():
        base = measure_device(setting.job, task.device)
        fleet = fleet_of(args, base, setting, task.batch)
        for name in algorithms_of(args):
            note(args, f"{name} ...")
            outcomes[name] = simulate(setting, algorithm_of(name, task.batch, rate, fleet, setting.nnz), fleet)
        if args.compare:
            outcomes[ALONE] = fastest_alone(setting, get_algorithm("sequential", task.batch, rate), fleet)
    show(args, describe_timing(base, setting, task.batch))
    if task.shortlist_size:
        show(args, "P@1 is of the network alone: its shortlist is learned afterwards, by one process")
    if args.compare:
        answer(args, format_table(COLUMNS, {name: summarize(outcome, outcomes) for name, outcome in outcomes.items()}))
        if diverged := [name for name, outcome in outcomes.items() if outcome.diverged]:
            show(args, f"{', '.join(diverged)}: {DIVERGED}")
        lines = [f"{name}: {line}" for name, outcome in outcomes.items() for line in choice(outcome.records)]
    else:
        lines = describe_outcome(outcomes[args.algorithm])
    for line in [*lines, *describe_prices(fleet)]:
        answer(args, line)
    write_json(args.json, result(args, base, fleet, outcomes))
    draw(args, outcomes)


def check_numbers(args: Namespace) -> None:
    """Raise `UsageError` or `DataError` for flags that say nothing sensible, before anything is read."""
    from ...training.executors.costs import VirtualDevice

    if args.rows < 1 or args.points < 1:
        raise UsageError(f"--rows and --points: must be at least 1, got {args.rows} and {args.points}")
    if not 0 < args.bandwidth < math.inf:
        raise UsageError(f"--bandwidth: must be finite and above 0, in GB a second, got {args.bandwidth:g}")
    if args.plot is not None:
        from ...training.plots import check_suffix

        check_suffix(args.plot)
    members(args, VirtualDevice())
    algorithms_of(args)


def prepared(args: Namespace) -> tuple[Any, Task]:
    """Return the estimator of the flags, and its task on at most `--rows` rows."""
    from ...data.synthetic import split_rows
    from ...estimators import XMLClassifier
    from ...estimators.parameters import check_parameters
    from ...estimators.task import prepare
    from ..sources import known_labels, read_training

    model = XMLClassifier(**given_parameters(args))
    check_parameters(model)
    data = read_training(args)
    train, test = (data.train, data.test) if data.test is not None else split_rows(data.train)
    train, test = drawn_rows(train, args.rows), drawn_rows(test, TEST_ROWS)
    held_out = test.X, known_labels(test.Y, train.n_labels)
    return model, prepare(model, train.X, train.Y, None, None, None, held_out, listing=True)


def drawn_rows(dataset: Dataset, most: int) -> Dataset:
    """Return at most `most` rows, drawn at random: files are often sorted."""
    import numpy as np

    from ...data.csr import Dataset

    if dataset.n_rows <= most:
        return dataset
    rows = np.sort(np.random.default_rng(0).permutation(dataset.n_rows)[:most])
    return Dataset(dataset.X.take(rows), dataset.Y.take(rows), dataset.label_names)


def setting_of(args: Namespace, model: Any, task: Task) -> Setting:
    """Return what all runs have in common."""
    from ...estimators.fitting import sampler_of, schedule_of
    from ...estimators.inference import Measure
    from ...training.learner import Job
    from ...training.simulation import Setting

    assert task.held_out is not None
    seed = model.random_state if isinstance(model.random_state, int) else 0
    job = Job(task.dataset, task.network, task.optimizer, seed, sampler=sampler_of(task))
    measure = Measure(task.held_out, task.network, task.device)
    return Setting(job, schedule_of(model, task), task.device, measure, args.points, 1e9 * args.bandwidth)


def algorithms_of(args: Namespace) -> list[str]:
    """Return the names of the algorithms to run; `DataError` for unknown ones."""
    from ...algorithms import algorithm_names, check_algorithm

    if args.compare == "all":
        return algorithm_names()
    if not args.compare:
        check_algorithm(args.algorithm)
        return [args.algorithm]
    names = [name.strip() for name in args.compare.split(",")]
    for name in names:
        try:
            check_algorithm(name)
        except DataError as error:
            raise DataError(f"--compare: {error}") from error
    return names


def algorithm_of(name: str, batch: int, rate: float, fleet: Sequence[VirtualDevice], nnz: float) -> Algorithm:
    """Return the algorithm of a name; "auto" is told the speeds, and whether all devices write one memory."""
    from ...algorithms import get_algorithm
    from ...algorithms.auto import Auto
    from ...training.executors.costs import row_speeds

    if name != "auto":
        return get_algorithm(name, batch, rate)
    return Auto(batch, rate, row_speeds(fleet, batch, nnz), all(device.in_place for device in fleet))


def fleet_of(args: Namespace, base: VirtualDevice, setting: Setting, batch: int) -> list[VirtualDevice]:
    """Return the devices of `--fleet`."""
    from ...training.executors.scenarios import scenario

    return members(args, base) or scenario(args.fleet.upper(), base, setting.rows, setting.nnz, batch)


def members(args: Namespace, base: VirtualDevice) -> list[VirtualDevice]:
    """Return the devices that `--fleet` lists; none where it names a scenario."""
    from ...training.executors.fleet_text import parse_fleet
    from ...training.executors.scenarios import SCENARIOS

    if args.fleet.upper() in SCENARIOS:
        return []
    if ":" not in args.fleet:
        known = f"a scenario, one of {', '.join(SCENARIOS)}, or NAME:SPEED, as in gpu:1*2,cpu:.1"
        raise DataError(f"--fleet: must be {known}, got {args.fleet!r}{suggest(args.fleet, SCENARIOS)}")
    return parse_fleet(args.fleet, base)


def draw(args: Namespace, outcomes: Mapping[str, Outcome]) -> None:
    """Draw the curves if a file is asked for."""
    if args.plot is None:
        return
    from ...training.plots import plot_over_time

    curves = {name: [outcome.curve] for name, outcome in outcomes.items() if outcome.curve}
    plot_over_time(curves, args.plot, title=f"{args.fleet}, simulated")


def result(
    args: Namespace, base: VirtualDevice, fleet: list[VirtualDevice], outcomes: Mapping[str, Outcome]
) -> dict[str, Any]:
    """Return all of it for JSON."""
    from dataclasses import asdict

    return {
        "fleet": [asdict(device) for device in fleet],
        "speed_one": asdict(base),
        "runs": {
            name: {
                **summarize(outcome, outcomes),
                "diverged": outcome.diverged,
                "curve": outcome.curve,
                "workers": outcome.workers,
                "records": outcome.records,
            }
            for name, outcome in outcomes.items()
        },
        "parameters": given_parameters(args),
        "versions": versions(),
    }
