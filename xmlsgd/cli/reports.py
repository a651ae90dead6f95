"""Tables of simulated runs: algorithms side by side, or one over time and device by device."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .results import aligned

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..training.executors.virtual_device import VirtualDevice
    from ..training.simulation import Outcome

REACHED = 0.95  # of the best P@1 of a comparison
SIGNIFICANT = "three digits"
DIVERGED = "the loss was not finite; pass a lower --learning-rate-init"
# Columns and how their numbers are written.
COLUMNS = {
    "P@1": ".2f", "seconds": SIGNIFICANT, "to 95 %": SIGNIFICANT, "rows/s": SIGNIFICANT, "busy %": ".0f",
    "effic. %": ".0f", "sync %": ".1f", "cost": SIGNIFICANT,
}  # fmt: skip
CURVE = {"seconds": SIGNIFICANT, "P@1": ".2f", "loss": ".4g"}
DEVICES = {
    "speed": "g", "rows %": ".1f", "updates %": ".1f", "busy %": ".0f", "batch": ".0f",
    "brings %": ",.0f", "cost": SIGNIFICANT,
}  # fmt: skip
MEANING = {
    "P@1": "precision at 1 on the test rows, in percent",
    "seconds": "simulated seconds until the end",
    "to 95 %": "simulated seconds until 95 % of the best final P@1 was reached",
    "rows/s": "training rows per simulated second",
    "busy %": "share of its time in which a device computes",
    "effic. %": "rows/s in percent of what all devices could do without waiting",
    "sync %": "share of the time spent on merges and transfers",
    "cost": "price of all devices until the end",
    "loss": "mean loss per row since the row above",
    "speed": "of the device; this machine has speed 1",
    "rows %": "share of the training rows",
    "updates %": "share of the updates",
    "batch": "rows per step at the end",
    "brings %": "share of the throughput that would be lost without the device",
}


def legend(*tables: Mapping[str, str]) -> list[str]:
    """Return a line about each column of some tables."""
    columns = dict.fromkeys(name for columns in tables for name in columns)
    return [f"  {name:<10} {MEANING[name]}" for name in columns]


def format_table(columns: Mapping[str, str], rows: Mapping[str, Mapping[str, float | None]]) -> str:
    """Return named rows as a table, each number in the format of its column."""
    cells = [[format_number(row.get(column), form) for column, form in columns.items()] for row in rows.values()]
    return aligned(list(rows), list(columns), cells)


def format_number(value: float | None, form: str) -> str:
    """Return a number in a format, a dash for none."""
    if value is None:
        return "-"
    return significant(value) if form == SIGNIFICANT else f"{value:{form}}"


def significant(value: float) -> str:
    """Return a number with at least three significant digits: 0.00128, 45.2, 1,234,567."""
    if not value or not math.isfinite(value):
        return f"{value:.0f}"
    decimals = max(2 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{decimals}f}" if decimals < 8 else f"{value:.2e}"


def summarize(outcome: Outcome, outcomes: Mapping[str, Outcome]) -> dict[str, float | None]:
    """Return the row of an outcome in a comparison."""
    target = REACHED * max(other.final() for other in outcomes.values())
    return {
        "P@1": outcome.final(),
        "seconds": outcome.seconds,
        "to 95 %": None if outcome.diverged else outcome.seconds_to(target),
        "rows/s": outcome.rows_per_second,
        "busy %": 100 * outcome.utilisation,
        "effic. %": 100 * outcome.efficiency,
        "sync %": 100 * outcome.sync_share,
        "cost": outcome.cost,
    }


def describe_outcome(outcome: Outcome) -> list[str]:
    """Return P@1 over time, what each device did, and the figures of the whole run."""
    from ..training.worker_log import advice, choice

    found = [format_table(CURVE, {f"{point['rows']:>12,} rows": point for point in outcome.curve}), ""]
    if outcome.workers:
        devices = {outcome.fleet[entry["worker"]].name: summarize_device(outcome, entry) for entry in outcome.workers}
        found += [format_table(DEVICES, devices), ""]
    found.append(
        f"{significant(outcome.rows_per_second)} rows/s; scheduling efficiency {100 * outcome.efficiency:.0f} %, "
        f"merges and transfers {100 * outcome.sync_share:.1f} % of the time; cost {significant(outcome.cost)}"
    )
    if outcome.diverged:
        return [*found, DIVERGED]
    return found + choice(outcome.records) + advice(outcome.workers)


def describe_prices(fleet: Sequence[VirtualDevice]) -> list[str]:
    """Return a line about the devices that costs leave out, where only some have a price."""
    free = [device.name for device in fleet if not device.price]
    if len(free) in (0, len(fleet)):
        return []
    return [f"cost is of all devices, idle ones too; without a price, and counted as 0: {', '.join(free)}"]


def summarize_device(outcome: Outcome, entry: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the row of a worker: its speed, shares of the work, size of its last batches, cost."""
    device = outcome.fleet[entry["worker"]]
    rows, updates = (max(sum(other[name] for other in outcome.workers), 1) for name in ("rows", "updates"))
    last: Mapping[str, Any] = next((e for e in outcome.records[-1]["workers"] if e["worker"] == entry["worker"]), {})
    return {
        "speed": device.speed,
        "rows %": 100 * entry["rows"] / rows,
        "updates %": 100 * entry["updates"] / updates,
        "busy %": 100 * entry["utilisation"],
        "batch": last.get("batch"),
        "brings %": 100 * entry["brings"],
        "cost": device.cost(outcome.seconds),
    }
