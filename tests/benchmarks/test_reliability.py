"""The campaign of damage and faults: nothing goes wrong in a short one, and it sees what does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from benchmarks import damage, kills
from benchmarks.kills import ALGORITHMS, OPTIMIZERS
from benchmarks.overhead import LIMITS, WATCHING
from benchmarks.written_kinds import KINDS, Kind, write_arrays
from shared.paths import ROOT
from shared.processes import HANG
from xmlsgd.data.files.folders import read_folder
from xmlsgd.training.executors.liveness import Liveness


def short(part, folder):
    """Run a part of the campaign for a short time; return what it has found."""
    command = [sys.executable, "-m", "benchmarks.reliability", "--short", part, "--out", str(folder)]
    subprocess.run(command, cwd=ROOT, timeout=HANG)
    return json.loads((folder / f"{part}.json").read_text())["result"]


def test_the_functions_whose_time_is_measured_exist():
    assert all(hasattr(Liveness, name) for name in WATCHING)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_no_damage_goes_wrong_in_a_short_campaign(tmp_path):
    found = short("damage", tmp_path)
    assert damage.wrong(found) == []
    for name, kind in KINDS.items():
        assert found[f"{name}: faults"]["right"] > 0
        assert not kind.damaged or found[f"{name}: damage"]["refused"] > 0


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_no_kill_goes_wrong_in_a_short_campaign(tmp_path):
    found = short("kills", tmp_path)
    assert damage.wrong(found) == []
    assert kills.total(found, "workers") > len(ALGORITHMS)
    assert kills.total(found, "coordinators") >= len(OPTIMIZERS)
    assert all(found[f"workers: {text}, {optimizer}"]["runs"] for text in ALGORITHMS for optimizer in OPTIMIZERS)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_costs_of_reliability_are_measured(tmp_path):
    (costs,) = short("overhead", tmp_path)
    assert set(costs["percent"]) == set(LIMITS)


def test_a_reader_that_compares_no_checksums_is_found_out(tmp_path):
    def unverified(path):
        files = read_folder(path, verify=False)
        return files.description, {name: array.tolist() for name, array in files.arrays.items()}

    kind = Kind(write_arrays, unverified)
    found = damage.damage(kind, tmp_path, HANG)
    assert found["accepted wrongly"] > 0
    assert damage.wrong({"model": found}) == ["model: accepted wrongly"]
