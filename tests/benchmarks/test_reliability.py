"""The campaign of damage and faults: nothing goes wrong in a short one, and it sees what does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from benchmarks import damage, kills
from benchmarks.kills import ALGORITHMS, OPTIMIZERS
from benchmarks.overhead import LIMITS
from benchmarks.written_kinds import KINDS, Kind, write_arrays
from shared.paths import ROOT
from shared.processes import HANG
from xmlsgd.data.files.folders import read_folder


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_nothing_goes_wrong_in_a_short_campaign(tmp_path):
    command = [sys.executable, "-m", "benchmarks.reliability", "--short", "overhead", "damage", "kills"]
    subprocess.run([*command, "--out", str(tmp_path)], cwd=ROOT, timeout=HANG)
    damaged, killed, costs = (
        json.loads((tmp_path / f"{part}.json").read_text())["result"] for part in ("damage", "kills", "overhead")
    )
    assert damage.wrong(damaged) + damage.wrong(killed) == []
    for name, kind in KINDS.items():
        assert damaged[f"{name}: faults"]["right"] > 0
        assert not kind.damaged or damaged[f"{name}: damage"]["refused"] > 0
    assert kills.total(killed, "workers") > len(ALGORITHMS)
    assert kills.total(killed, "coordinators") >= len(OPTIMIZERS)
    assert all(killed[f"workers: {text}, {optimizer}"]["runs"] for text in ALGORITHMS for optimizer in OPTIMIZERS)
    assert set(costs[0]["percent"]) == set(LIMITS)


def test_a_reader_that_compares_no_checksums_is_found_out(tmp_path):
    def unverified(path):
        files = read_folder(path, verify=False)
        return files.description, {name: array.tolist() for name, array in files.arrays.items()}

    kind = Kind(write_arrays, unverified)
    found = damage.damage(kind, tmp_path, HANG)
    assert found["accepted wrongly"] > 0
    assert damage.wrong({"model": found}) == ["model: accepted wrongly"]
