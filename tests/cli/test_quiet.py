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


def test_records_go_to_the_handlers_of_the_caller_again_after_a_command(caplog, capsys):
    with log_lines(Console()):
        LOGGER.error("during the command")
    LOGGER.error("after the command")
    assert [record.getMessage() for record in caplog.records] == ["after the command"]
    assert capsys.readouterr().err == "xmlsgd: during the command\n"
