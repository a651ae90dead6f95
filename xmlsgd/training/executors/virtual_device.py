"""The cost model of a simulated device, also fitted to a real one: overhead, work, speed, noise, stalls, absences."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...data.random_streams import NOISE
from ...data.validation import check_fields, within
from ...devices.base import Device
from ...errors import DataError, shorten
from ...nn.parameters import zeros
from ..job import Job
from ..learner import Learner
from ..messages import Report, Span

MAX_FACTOR, MAX_SECONDS, MAX_NOISE = 1e9, 1e6, 10.0  # larger values would make durations overflow
SIZES = (1, 4, 16, 32, 64, 128, 256)  # rows of the updates of a real device that are timed
REPEATS = 5  # the shortest counts: other work on the machine only lengthens spans


@dataclass(frozen=True)
class VirtualDevice:
    """A device on the simulated clock.

    Attributes
    ----------
    overhead : float
        Seconds per update, in [0, 1e6].
    per_row, per_nnz : float
        Seconds per row and per stored feature at speed 1, in [0, 1e6].
    speed : float
        Factor of the speed, in [1e-9, 1e9].
    trace : tuple of (float, float)
        Changes of the speed: (from second, factor), ascending.
    noise : float
        Standard deviation of the logarithm of a span's duration, in [0, 10].
    stalls : (float, float)
        Share of the updates that stall, and the factor of their duration, at most 1e9.
    absent : tuple of (float, float)
        (from, to) seconds in which the device is away. It loses the work that it has not merged.
    in_place : bool
        Whether it writes a shared model in place, as the CPUs of one machine and a single device do. Other devices
        pull a copy and push their changes.
    name : str
        Name for tables.
    """

    overhead: float = within(1e-3, 0, MAX_SECONDS)
    per_row: float = within(1e-4, 0, MAX_SECONDS)
    per_nnz: float = within(0.0, 0, MAX_SECONDS)
    speed: float = within(1.0, 1 / MAX_FACTOR, MAX_FACTOR)
    trace: tuple[tuple[float, float], ...] = ()
    noise: float = within(0.0, 0, MAX_NOISE)
    stalls: tuple[float, float] = (0.0, 1.0)
    absent: tuple[tuple[float, float], ...] = ()
    in_place: bool = False
    name: str = "device"

    def __post_init__(self) -> None:
        """Raise `DataError` for numbers outside their ranges, and if a span would take no time."""
        check_fields(self)
        if self.overhead + self.per_row + self.per_nnz == 0:
            raise DataError("overhead, per_row and per_nnz must not all be 0, got 0 for each")
        if not all(1 / MAX_FACTOR <= factor <= MAX_FACTOR for _, factor in self.trace):
            raise DataError(
                f"factors of trace must be in [{1 / MAX_FACTOR:g}, {MAX_FACTOR:g}], got {shorten(self.trace)}"
            )
        if not (0 <= self.stalls[0] <= 1 and 1 <= self.stalls[1] <= MAX_FACTOR):
            raise DataError(
                f"stalls must be a share in [0, 1] and a factor in [1, {MAX_FACTOR:g}], got {shorten(self.stalls)}"
            )
        for moments in [moment for span in self.absent for moment in span], [since for since, _ in self.trace]:
            if not all(moment >= 0 for moment in moments) or moments != sorted(set(moments)):
                got = f"{shorten(self.trace)} and {shorten(self.absent)}"
                raise DataError(f"times of trace and absent must be at least 0 and ascending, got {got}")

    def seconds(self, at: float, rows: int, nnz: int, updates: int, draw: np.random.Generator) -> float:
        """Return the duration of a span that begins at second `at`; `draw` draws its noise."""
        work = self.per_row * rows + self.per_nnz * nnz
        factor = math.exp(self.noise * draw.standard_normal()) if self.noise else 1.0
        if self.stalls[0]:
            factor *= 1 + draw.binomial(updates, self.stalls[0]) / updates * (self.stalls[1] - 1)
        begun = at + self.overhead * updates * factor
        return self._end(begun, work * factor) - at

    def speed_at(self, at: float) -> float:
        """Return the factor of the speed at second `at`."""
        return next((factor for since, factor in reversed(self.trace) if since <= at), self.speed)

    def presence(self, until: float) -> list[tuple[float, float]]:
        """Return the (from, to) seconds until `until` in which the device is present."""
        moments = [0.0, *(moment for span in self.absent for moment in span), until]
        spans = zip(moments[::2], moments[1::2], strict=True)
        return [(begin, min(end, until)) for begin, end in spans if begin < min(end, until)]

    def row_seconds(self, at: float, batch: int, nnz: float) -> float:
        """Return the mean seconds per row at second `at`, in batches of `batch` rows of `nnz` stored features."""
        seconds = self.overhead / batch + (self.per_row + self.per_nnz * nnz) / self.speed_at(at)
        share, factor = self.stalls
        return seconds * math.exp(self.noise**2 / 2) * (1 + share * (factor - 1))

    def capacity(self, until: float, batch: int, nnz: float) -> float:
        """Return the rows that the device could train until second `until` without ever waiting."""
        total = 0.0
        for begin, end in self.presence(until):
            moments = [begin, *(since for since, _ in self.trace if begin < since < end), end]
            total += sum((b - a) / self.row_seconds(a, batch, nnz) for a, b in itertools.pairwise(moments))
        return total

    def _end(self, at: float, work: float) -> float:
        """Return when `work`, seconds at speed 1, is done if it begins at `at`."""
        for change in [since for since, _ in self.trace if since > at]:
            speed = self.speed_at(at)
            if at + work / speed <= change:
                return at + work / speed
            work -= (change - at) * speed
            at = change
        return at + work / self.speed_at(at)


def scheduling_efficiency(fleet: Sequence[VirtualDevice], rows: int, seconds: float, batch: int, nnz: float) -> float:
    """Return the rows trained in `seconds` over those that the fleet could have trained: 1 if no device ever waits.

    Speeds are those in batches of `batch` rows (`capacity`). Smaller batches and merges lower the efficiency; larger
    batches could raise it above 1.
    """
    possible = sum(device.capacity(seconds, batch, nnz) for device in fleet)
    return rows / possible if possible else 0.0


def fastest(fleet: Sequence[VirtualDevice]) -> VirtualDevice:
    """Return the device with the highest initial speed."""
    return max(fleet, key=lambda device: device.speed)


def span_noise(seed: int, worker: int, number: int) -> np.random.Generator:
    """Return the generator of the noise of one span of one worker, independent of all others."""
    return np.random.default_rng((seed, NOISE, worker, number))


def measure_device(job: Job, device: Device) -> VirtualDevice:
    """Return the virtual device of speed 1, without noise, that takes as long as `device`.

    The device must have been started. Takes about as long as training on 2,500 rows.
    """
    flat = zeros(job.network.layout.size)
    job.network.initialize(flat, job.dataset.Y, job.seed)
    learner = Learner(job, device, flat, pulled=True)
    learner.load_kernels()
    sizes = sorted({min(size, job.dataset.n_rows) for size in SIZES})
    timed = [[learner.train_span(Span(0, 0, 0, size, 0.0)) for _ in range(1 + REPEATS)][1:] for size in sizes]
    reports = [min(repeats, key=lambda report: report.seconds) for repeats in timed]
    return replace(fit_device(reports), noise=0.0)


def fit_device(reports: Iterable[Report]) -> VirtualDevice:
    """Return the device whose costs fit real reports best, by non-negative least squares of relative errors.

    The noise is the standard deviation of the logarithm of real over fitted durations.
    """
    from scipy.optimize import nnls

    table = np.array([(r.updates, r.rows, r.nnz, r.seconds) for r in reports], np.float64)
    costs, _ = nnls(table[:, :3] / table[:, 3:], np.ones(len(table)))
    fitted = table[:, :3] @ costs
    overhead, per_row, per_nnz = map(float, costs)
    return VirtualDevice(overhead, per_row, per_nnz, noise=float(np.std(np.log(table[:, 3] / fitted))))
