"""Tables of simulated runs: algorithms side by side, or one over time and device by device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .results import SIGNIFICANT, significant, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..training.executors.virtual_device import VirtualDevice
    from ..training.simulation import Outcome

REACHED = 0.95  # of the best P@1 of a comparison
DIVERGED = "the loss was not finite; pass a lower --learning-rate-init"
# Columns and how their numbers are written.
COLUMNS = {
    "P@1": ".2f", "seconds": SIGNIFICANT, "to 95 %": SIGNIFICANT, "rows/s": SIGNIFICANT, "busy %": ".0f",
    "effic. %": ".0f", "sync %": ".1f", "cost": SIGNIFICANT,
}  # fmt: skip
CURVE = {"seconds": SIGNIFICANT, "P@1": ".2f", "loss": ".4g"}
DEVICES = {
    "speed": "g", "rows %": ".1f", "updates %": ".1f", "busy %": ".0f", "batch": ".0f",
    "contribution %": ",.0f", "cost": SIGNIFICANT,
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
    "contribution %": "share of the throughput that would be lost without the device",
}


def legend() -> str:
    """Return a line about each column of the tables."""
    return "\n".join(f"  {name:<10} {meaning}" for name, meaning in MEANING.items())


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

    found = [table({f"{point['rows']:>12,} rows": point for point in outcome.curve}, CURVE), ""]
    if outcome.workers:
        devices = {outcome.fleet[entry["worker"]].name: summarize_device(outcome, entry) for entry in outcome.workers}
        found += [table(devices, DEVICES), ""]
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
        "contribution %": 100 * entry["contribution"],
        "cost": device.cost(outcome.seconds),
    }
