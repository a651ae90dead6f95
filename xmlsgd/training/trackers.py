"""Callbacks that send epoch records to TensorBoard, MLflow or Weights & Biases (`pip install "xmlsgd[trackers]"`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from ..data.validation import is_number
from ..errors import LOGGER, in_one_line, missing_package
from .callbacks import Callback
from .history import EpochRecord

FINISH_SECONDS = 60.0  # to upload what is left at the end: the model is not saved yet
NOT_TRACKED = ("epoch", "first_epoch", "estimator")  # the x-axis, and what is a part of names instead


def numbers_of(record: EpochRecord) -> dict[str, float]:
    """Return the numbers of an epoch record by name.

    Names of a worker's numbers begin with "worker0/", those of the algorithm with "algorithm/", and all names of a
    classifier of an ensemble with "estimator0/".
    """
    found: dict[str, float] = {}

    def add(begins: str, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if is_number(value):
                found[begins + name] = float(value)
            elif isinstance(value, Mapping):
                add(f"{begins}{name}/", value)

    begins = f"estimator{record['estimator']}/" if "estimator" in record else ""
    add(begins, {name: value for name, value in record.items() if name not in NOT_TRACKED})
    for entry in record.get("workers", ()):
        add(f"{begins}worker{entry['worker']}/", {name: value for name, value in entry.items() if name != "worker"})
    return found


class Tracker(Callback):
    """Base class of trackers: a run is opened at the start, gets the numbers of each epoch, and is closed at the end.

    A tracker that fails does not end the training: it logs an error and is left out of the rest of the run.

    Parameters
    ----------
    place : str, default=""
        Where to log the run: a folder, server or project; "" for the default of the tracker.

    Raises
    ------
    MissingPackage
        If the package is not installed.
    """

    package: ClassVar[str]

    def __init__(self, place: str = "") -> None:
        if find_spec(self.package) is None:
            raise missing_package(self.package, "trackers")
        self.place = place
        self._run: Any = None

    def start(self, n_rows: int, epochs: int, center: np.ndarray) -> None:
        """Open a run; close an earlier one that an error has ended."""
        self._guarded(self._close)
        self._guarded(self._open)

    def epoch(self, record: EpochRecord, center: np.ndarray) -> bool:
        """Send the numbers of the record."""
        if self._run is not None:
            self._guarded(lambda: self._send(numbers_of(record), record["epoch"]))
        return False

    def finish(self, center: np.ndarray) -> None:
        """Close the run."""
        self._guarded(self._close)

    def _guarded(self, call: Callable[[], None]) -> None:
        """Call, and stop tracking where that fails."""
        try:
            call()
        except Exception as error:  # noqa: BLE001  whatever it is, the training counts
            self._run = None
            text = f"{type(self).__name__} does not track the rest of the run: {in_one_line(error)}"
            LOGGER.error(text)

    def _open(self) -> None:
        """Set `_run`."""

    def _send(self, numbers: dict[str, float], epoch: int) -> None:
        """Send the numbers of an epoch."""

    def _close(self) -> None:
        """Close the run, if there is one."""
        run, self._run = self._run, None
        if run is not None:
            self._end(run)

    def _end(self, run: Any) -> None:
        """Close a run."""


class TensorBoard(Tracker):
    """Write an event file for TensorBoard into the folder `place`, by default "runs"."""

    package = "tensorboard"

    def _open(self) -> None:
        from tensorboard.summary import Writer

        self._run = Writer(self.place or "runs")

    def _send(self, numbers: dict[str, float], epoch: int) -> None:
        for name, value in numbers.items():
            self._run.add_scalar(name, value, epoch)
        self._run.flush()

    def _end(self, run: Any) -> None:
        run.close()


class MLflow(Tracker):
    """Log to the active run of MLflow, or else to a new one, on the tracking server or store `place`.

    Names have "_at_" for "@", which MLflow does not take: "P_at_1".
    """

    package = "mlflow"

    def _open(self) -> None:
        import mlflow

        if self.place:
            mlflow.set_tracking_uri(self.place)
        active = mlflow.active_run()
        self._run, self._is_own = active or mlflow.start_run(), active is None

    def _send(self, numbers: dict[str, float], epoch: int) -> None:
        import mlflow

        named = {name.replace("@", "_at_"): value for name, value in numbers.items()}
        mlflow.log_metrics(named, step=epoch, run_id=self._run.info.run_id)

    def _end(self, run: Any) -> None:
        if self._is_own:
            import mlflow

            mlflow.end_run()


class WandB(Tracker):
    """Log to a new run of Weights & Biases in the project `place`."""

    package = "wandb"

    def _open(self) -> None:
        import wandb

        self._run = wandb.init(project=self.place or None, settings=wandb.Settings(finish_timeout=FINISH_SECONDS))
        self._run.define_metric("*", step_metric="epoch")  # steps of a run that resumes would have to grow

    def _send(self, numbers: dict[str, float], epoch: int) -> None:
        self._run.log({**numbers, "epoch": epoch})

    def _end(self, run: Any) -> None:
        run.finish()


TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}
