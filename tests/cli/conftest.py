"""Models of the sample, trained by the command line."""

from __future__ import annotations

import pytest
from command_line import QUICK, ROWS, TEST_ROWS, TEST_TEXT, TEXT, run


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A folder with `rows` and `text`, models of the sample in both forms, and the JSON of their training."""
    folder = tmp_path_factory.mktemp("models")
    run("train", ROWS, "--test", TEST_ROWS, "--out", folder / "rows", "--json", folder / "rows.json", *QUICK)
    run("train", TEXT, "--test", TEST_TEXT, "--out", folder / "text", "--json", folder / "text.json", *QUICK)
    return folder
