"""`export`: a compact model beside the one that learns on."""

from __future__ import annotations

import pytest

from shared.command_line import QUICK, TEXT, run
from xmlsgd.cli import main


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "m"
    run("train", TEXT, "--out", folder, "--quiet", *QUICK, "--epochs", "1")
    return str(folder)


def test_a_compact_model_does_not_replace_the_model(model, capsys):
    assert main(["export", model, "--compact", model, "--overwrite"]) == 2
    assert f"--compact {model}: is an input of this command" in capsys.readouterr().err


def test_the_folder_must_be_named_and_is_replaced_only_if_asked(model, tmp_path, capsys):
    assert main(["export", model]) == 2
    assert "the following arguments are required: --compact" in capsys.readouterr().err
    small = str(tmp_path / "small")
    assert main(["export", model, "--compact", small]) == 0
    assert main(["export", model, "--compact", small]) == 2
    assert f"--compact {small}: exists; --overwrite replaces it" in capsys.readouterr().err
