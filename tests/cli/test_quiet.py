"""What is told although a user wants quiet."""

from __future__ import annotations

import pytest

from xmlsgd.cli.messages import Console, log_lines
from xmlsgd.errors import LOGGER


@pytest.mark.parametrize("quiet", [False, True])
def test_errors_are_told_quiet_or_not_and_other_records_where_that_is_not_wanted(quiet, capsys):
    with log_lines(Console(quiet=quiet)):
        LOGGER.warning("compiling")
        LOGGER.error("no checkpoint was written")
    told = capsys.readouterr().err.splitlines()
    assert told == ["xmlsgd: compiling"] * (not quiet) + ["xmlsgd: no checkpoint was written"]
