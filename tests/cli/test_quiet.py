"""What is told although a user wants quiet."""

from __future__ import annotations

import logging

import pytest

from xmlsgd.cli.messages import Console, log_lines
from xmlsgd.data.files.compiled import LOGGER


@pytest.mark.parametrize("quiet", [False, True])
def test_errors_are_told_quiet_or_not_and_other_records_where_that_is_not_wanted(quiet, capsys):
    with log_lines(Console(quiet=quiet)):
        logging.getLogger(LOGGER).warning("compiling")
        logging.getLogger(LOGGER).error("no checkpoint was written")
    told = capsys.readouterr().err.splitlines()
    assert told == ["xmlsgd: compiling"] * (not quiet) + ["xmlsgd: no checkpoint was written"]
