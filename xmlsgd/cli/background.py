"""Work that a second process does meanwhile, where it only has to be done, not to come back."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from multiprocessing import get_context, resource_tracker
from typing import TYPE_CHECKING, Any

from ..data.files.compiled import LOGGER
from ..training.executors.worker import signals_held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def meanwhile(work: Callable[..., None], *arguments: Any) -> Iterator[None]:
    """Call `work(*arguments)`, which must pickle, in a process of its own, and wait for it at the end.

    Where that process fails, it is done here: it succeeds, or says why it cannot. After an error or a signal here the
    process is ended.
    """
    process = get_context("spawn").Process(target=_silently, args=(work, arguments), daemon=True)
    resource_tracker.ensure_running()  # what starts it would let Ctrl-C through again
    with signals_held():  # which are for this process alone
        process.start()
    try:
        yield
        process.join()
    finally:
        process.kill()
        process.join()
    if process.exitcode != 0:
        work(*arguments)


def _silently(work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """Do the work; say nothing that the first process says, or will say."""
    logging.getLogger(LOGGER).addHandler(logging.NullHandler())
    try:
        work(*arguments)
    except Exception:  # noqa: BLE001  it is done again where it can be told
        sys.exit(1)
