"""The simulated clock over real worker processes: one step at a time, in simulated order, on the mapped table.

Shows that pickling, mapping and writing back change nothing: a run equals the simulated one to the bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xmlsgd.training.executors.simulated import Simulated
from xmlsgd.training.executors.worker_pool import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from xmlsgd.devices.base import Device
    from xmlsgd.training.executors.virtual_device import VirtualDevice
    from xmlsgd.training.learner import Job
    from xmlsgd.training.messages import Sharing


class Lockstep(Simulated):
    """One process for each virtual device of `fleet`; `make_device` makes the real device of each."""

    def __init__(self, make_device: Callable[[], Device], fleet: Sequence[VirtualDevice], **settings: Any) -> None:
        super().__init__(make_device(), fleet, **settings)
        self.pool = WorkerPool([make_device] * len(fleet))

    def _start_learners(self, job: Job, sharing: Sharing) -> None:
        self.pool.start(job, self._prepare(job, sharing, self.pool.make_table(job)), sharing)
        processes = [self.pool.processes[w] for w in self.workers]
        for process in processes:
            process.receive()  # that it is ready
        self.learners = processes

    def result(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Return model, optimizer state and steps, in the arrays of `Job.start` where there are any."""
        params, state, steps = super().result()
        return *self.pool.copy_result(params, state), steps

    def close(self) -> None:
        """End the processes."""
        super().close()
        self.pool.close()
