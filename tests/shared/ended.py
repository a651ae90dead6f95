"""The run that an error has ended."""

from __future__ import annotations

from xmlsgd.training.loop import Run, run_of


def ended_run(error: BaseException) -> Run:
    """Return the result attached to the error."""
    run = run_of(error)
    assert run is not None
    return run
