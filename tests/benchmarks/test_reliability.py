"""The campaign of damage and faults: nothing goes wrong in a short one, and it sees what does."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from benchmarks import reliability
from shared.paths import ROOT
from shared.processes import HANG
from xmlsgd.data.files.model_files import read_model

PROGRAM = "import json; from benchmarks.reliability import campaign; print(json.dumps(campaign(12, 0, False)))"


@pytest.mark.slow
def test_no_damage_is_accepted_and_no_fault_leaves_half_a_folder():
    command = [sys.executable, "-c", PROGRAM]  # in a process of its own, as an audit hook stays
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG, check=True)
    results = json.loads(done.stdout)
    assert len(results) == 9
    assert all(results[f"{kind}: damage"]["refused"] > 0 for kind in reliability.KINDS)
    assert reliability.wrong(results) == []


def test_a_reader_that_compares_no_checksums_is_found_out(tmp_path):
    def unverified(path):
        files = read_model(path, verify=False)
        return files.description, {name: array.tolist() for name, array in files.arrays.items()}

    kind = (reliability.write_arrays, unverified)
    found = reliability.damage(kind, tmp_path, time.monotonic() + HANG)
    assert found["accepted wrongly"] > 0
    assert reliability.wrong({"model": found}) == ["model: accepted wrongly"]
