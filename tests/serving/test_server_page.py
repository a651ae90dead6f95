"""The recipes of `docs/server.md`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest

from shared.paths import ROOT
from xmlsgd.cli import new_parser

PAGE = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
PROGRAMS = {
    "date": f'exec {shutil.which("date")} -d "$NOW" "$@"',
    "xmlsgd": 'if [ $1 = train ]; then mkdir "${10}"; else [ "$2" != "$(readlink "$5")" ]; fi',  # as it refuses
    "jq": "if [ $1 = -r ]; then echo --analyzer word --min-df 1; else exit $WORSE; fi",
    "systemctl": "echo $1",
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_two_runs_of_the_same_night_train_two_models_and_a_worse_one_is_an_error(tmp_path):
    (lines,) = re.findall(r"^    set -e; .*\n(?:    .*\n)+", PAGE, re.MULTILINE)
    (models := tmp_path / "models").mkdir()
    (programs := tmp_path / "programs").mkdir()
    for name, text in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    path, linked = f"{programs}{os.pathsep}{os.environ['PATH']}", []
    for second, worse in ((1, 0), (2, 0), (3, 1)):
        environment = {"PATH": path, "NOW": f"2026-11-30 02:00:0{second}", "WORSE": str(worse)}
        command = ["bash", "-c", lines.replace("/srv/models", str(models))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == ((1, "") if worse else (0, "reload\n")), done.stderr
        assert done.stderr.endswith(": worse than current\n") == bool(worse)
        linked.append(os.readlink(models / "current"))
    assert linked[0] != linked[1] == linked[2]
    assert len(list(models.iterdir())) == 4


@pytest.mark.parametrize(
    ("path", "is_hidden"), [("suggest", False), ("health", False), ("metrics", True), ("metrics/", True)]
)
def test_nginx_hides_metrics_with_and_without_a_slash(path, is_hidden):
    """An exact match wins, then the longest prefix."""
    locations = re.findall(r"^    location (=|\^~|) ?(/\S+) \{ (.*) \}$", PAGE, re.MULTILINE)
    path = f"/subjects/{path}"
    matching = [each for each in locations if (path == each[1] if each[0] == "=" else path.startswith(each[1]))]
    *_, does = max(matching, key=lambda each: (each[0] == "=", len(each[1])))
    assert does.startswith("deny" if is_hidden else "proxy_pass")


def test_an_image_is_compiled_by_the_user_that_serves_who_owns_the_kernels():
    (lines,) = re.findall(r"^    ENV .*\n(?:    .*\n)+", PAGE, re.MULTILINE)
    (folder,) = re.findall(r"NUMBA_CACHE_DIR=(\S+)", lines)
    (user,) = re.findall(r"USER (\d+)", lines)
    assert lines.index(f"chown {user} {folder}") < lines.index("USER") < lines.index("xmlsgd compile")
    (words,) = re.findall(r"CMD (.*)", lines)
    program, *rest = json.loads(words)
    assert program == "xmlsgd"
    assert new_parser().parse_args(rest).host == "0.0.0.0"
    assert f":{folder} " in re.findall(r"docker run --init .*", PAGE)[0]
