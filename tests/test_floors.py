"""Imports point down: a module imports lower floors or its own folder, nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from paths import ROOT

PACKAGE = ROOT / "xmlsgd"

# Lowest first. What stands on one floor does not import its neighbours, so algorithms never see executors.
FLOORS = (
    ("errors", "files"),
    ("csr", "json_files", "kinds", "params", "records"),
    ("datasets", "losses", "metrics", "optimizers", "schedules", "table"),
    ("devices", "merging"),
    ("samplers",),
    ("deltas", "network", "shortlist"),
    ("learner",),
    ("algorithms", "executors"),
    ("checkpoint", "history", "router", "snapshot"),
    ("averaging", "plots", "progress", "workers"),
    ("engine",),
    ("estimators", "simulation"),
    ("cli",),
    ("__main__",),
    ("__init__",),
)
FLOOR_OF = {name: floor for floor, names in enumerate(FLOORS) for name in names}


def imported_names(file: Path, root: Path) -> list[tuple[int, str]]:
    """Return (line, name below the package) of each import in `file`, those inside functions too."""
    package = root.name
    folder = (package, *file.relative_to(root).parts[:-1])
    found = []
    for node in ast.walk(ast.parse(file.read_text(), file)):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else ()
            module = [*base, *(node.module.split(".") if node.module else ())]
            targets = [[*module, alias.name] for alias in node.names] if len(module) == 1 else [module]
        else:
            continue
        # The version is a constant of the package itself; any other name of it would be one from a higher floor.
        below = [".".join(path[1:2]) or "__init__" for path in targets if path[0] == package]
        found += [(node.lineno, name) for name in below if name != "__version__"]
    return found


def violations(root: Path) -> list[str]:
    """Return a line `file:line: what is wrong` for each import that does not point down, and each unknown module."""
    lines = []
    for file in sorted(root.rglob("*.py")):
        place = file.relative_to(root.parent)
        own = file.relative_to(root).parts[0].removesuffix(".py")
        if own not in FLOOR_OF:
            lines.append(f"{place}: {own!r} stands on no floor; add it to FLOORS in tests/test_floors.py")
            continue
        for line, name in imported_names(file, root):
            if name not in FLOOR_OF:
                lines.append(f"{place}:{line}: imports {name!r}, which stands on no floor")
            elif name != own and FLOOR_OF[name] >= FLOOR_OF[own]:
                lines.append(
                    f"{place}:{line}: {own!r} (floor {FLOOR_OF[own]}) imports {name!r} (floor {FLOOR_OF[name]})"
                )
    return lines


def test_every_import_of_the_package_points_down():
    assert not violations(PACKAGE), "\n" + "\n".join(violations(PACKAGE))


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("csr.py", "from .engine import train", "'csr' (floor 1) imports 'engine' (floor 10)"),
        ("csr.py", "from . import engine", "'csr' (floor 1) imports 'engine' (floor 10)"),
        ("csr.py", "import xmlsgd.engine", "'csr' (floor 1) imports 'engine' (floor 10)"),
        ("csr.py", "def f():\n    from xmlsgd import engine", "'csr' (floor 1) imports 'engine' (floor 10)"),
        ("csr.py", "import xmlsgd", "'csr' (floor 1) imports '__init__' (floor 14)"),
        ("csr.py", "from . import XMLClassifier", "imports 'XMLClassifier', which stands on no floor"),
        ("algorithms/a.py", "from ..executors.base import E", "'algorithms' (floor 7) imports 'executors' (floor 7)"),
        ("executors/e.py", "from .. import algorithms", "'executors' (floor 7) imports 'algorithms' (floor 7)"),
        ("helpers.py", "", "'helpers' stands on no floor"),
    ],
)
def test_an_import_that_points_up_is_named(tmp_path, file, source, complaint):
    path = tmp_path / "xmlsgd" / file
    path.parent.mkdir(parents=True)
    path.write_text(source)
    (found,) = violations(tmp_path / "xmlsgd")
    assert found.startswith(f"xmlsgd/{file}")
    assert complaint in found


@pytest.mark.parametrize(
    ("file", "source"),
    [
        (
            "engine.py",
            "import numpy\nimport xmlsgd.csr\nfrom . import __version__, csr\nfrom .algorithms.base import A",
        ),
        ("devices/cpu.py", "from . import base\nfrom .base import Device\nfrom ..csr import CSR"),
    ],
)
def test_imports_of_lower_floors_and_of_the_own_folder_are_fine(tmp_path, file, source):
    path = tmp_path / "xmlsgd" / file
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert violations(tmp_path / "xmlsgd") == []
