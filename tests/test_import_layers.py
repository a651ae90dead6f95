"""Imports point down: a module imports lower layers or its own folder, nothing else, and never in a cycle."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shared.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PACKAGE = ROOT / "xmlsgd"

# Lowest first. Modules of one layer do not import each other, so algorithms never see executors.
LAYERS = (
    ("data.frames", "errors"),
    ("data.files", "data.validation"),
    ("data.cores", "data.csr", "data.random_streams", "devices.cpu.intrinsics", "data.registry"),
    ("data", "metrics", "nn.losses", "nn.optimizers", "nn.parameters", "nn.schedules", "training.messages"),
    ("training.shared_parameters",),
    ("devices", "training.merging"),
    ("nn",),
    ("candidates", "training.deltas", "training.job"),
    ("estimators.inference", "training.learner"),
    ("algorithms", "training.executors"),
    ("training",),
    ("estimators",),
    ("serving",),
    ("cli",),
    ("__main__",),
    ("__init__",),
)
LAYER_OF = {name: layer for layer, names in enumerate(LAYERS) for name in names}


def imports(nodes: Iterable[ast.AST], file: Path, root: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield (line, path from the package on) of each name of the package that these nodes of `file` import."""
    folder = (root.name, *file.relative_to(root).parts[:-1])
    for node in nodes:
        if isinstance(node, ast.Import):
            paths = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            paths = [(*module, alias.name) for alias in node.names]
        else:
            continue
        # The version is a constant of the package itself; any other name of it would be one from a higher layer.
        yield from ((node.lineno, path) for path in paths if path[0] == root.name and path[1:] != ("__version__",))


def place_of(path: tuple[str, ...]) -> str:
    """Return the longest beginning of a dotted path, below the package, that has a layer; else its first part."""
    beginnings = [".".join(path[:length]) for length in range(len(path), 0, -1)]
    return next((name for name in beginnings if name in LAYER_OF), path[0] if path else "__init__")


def imported_names(file: Path, root: Path) -> list[tuple[int, str]]:
    """Return (line, module below the package) of each import in `file`, those inside functions too."""
    found = imports(ast.walk(ast.parse(file.read_text(), file)), file, root)
    return [(line, place_of(path[1:])) for line, path in found]


def run_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is below a node, but for what only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from run_nodes(child)


def cycle(root: Path) -> list[str]:
    """Return modules of which each imports the one before it, the first at both ends; none where there are no such."""
    files = {file.relative_to(root.parent).with_suffix("").parts: file for file in root.rglob("*.py")}
    files = {path[:-1] if path[-1] == "__init__" else path: file for path, file in files.items()}
    graph = {}
    for module, file in files.items():
        paths = [path for _, path in imports(run_nodes(ast.parse(file.read_text(), file)), file, root)]
        found = {path if path in files else path[:-1] for path in paths}
        graph[".".join(module)] = {".".join(path) for path in found if path in files}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def violations(root: Path) -> list[str]:
    """Return a line `file:line: what is wrong` for each import that does not point down, and each unknown module."""
    lines = []
    for file in sorted(root.rglob("*.py")):
        place = file.relative_to(root.parent)
        own = place_of(file.relative_to(root).with_suffix("").parts)
        if own not in LAYER_OF:
            lines.append(f"{place}: {own!r} is in no layer; add it to LAYERS in tests/test_import_layers.py")
            continue
        for line, name in imported_names(file, root):
            if name not in LAYER_OF:
                lines.append(f"{place}:{line}: imports {name!r}, which is in no layer")
            elif name != own and LAYER_OF[name] >= LAYER_OF[own]:
                lines.append(
                    f"{place}:{line}: {own!r} (layer {LAYER_OF[own]}) imports {name!r} (layer {LAYER_OF[name]})"
                )
    return lines


def test_every_import_of_the_package_points_down():
    assert not violations(PACKAGE), "\n" + "\n".join(violations(PACKAGE))


def test_no_modules_of_the_package_import_each_other_in_a_cycle():
    assert not cycle(PACKAGE), " imported by ".join(cycle(PACKAGE))


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("nn/network.py", "from ..training.loop import train", "'nn' (layer 6) imports 'training' (layer 10)"),
        ("nn/network.py", "from .. import training", "'nn' (layer 6) imports 'training' (layer 10)"),
        ("nn/network.py", "import xmlsgd.training.loop", "'nn' (layer 6) imports 'training' (layer 10)"),
        ("nn/n.py", "def f():\n    from xmlsgd import training", "'nn' (layer 6) imports 'training' (layer 10)"),
        ("data/csr.py", "from .store import open_store", "'data.csr' (layer 2) imports 'data' (layer 3)"),
        ("data/csr.py", "import xmlsgd", "'data.csr' (layer 2) imports '__init__' (layer 15)"),
        ("data/csr.py", "from .. import XMLClassifier", "imports 'XMLClassifier', which is in no layer"),
        (
            "algorithms/a.py",
            "from ..training.executors.base import E",
            "'algorithms' (layer 9) imports 'training.executors' (layer 9)",
        ),
        (
            "training/executors/e.py",
            "from ... import algorithms",
            "'training.executors' (layer 9) imports 'algorithms' (layer 9)",
        ),
        ("helpers.py", "", "'helpers' is in no layer"),
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
            "training/loop.py",
            "import numpy\nimport xmlsgd.data.csr\nfrom .. import __version__, data\nfrom ..algorithms.base import A",
        ),
        ("devices/cpu/device.py", "from .. import base\nfrom ..base import Device\nfrom ...data.csr import CSR"),
    ],
)
def test_imports_of_lower_layers_and_of_the_own_folder_are_fine(tmp_path, file, source):
    path = tmp_path / "xmlsgd" / file
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert violations(tmp_path / "xmlsgd") == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from .b import f", True),
        ("from . import b", True),
        ("import xmlsgd.folder.b", True),
        ("def g():\n    from .b import f", True),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .b import f", False),
        ("from .c import f", False),
    ],
)
def test_modules_of_a_folder_that_import_each_other_are_found_unless_only_type_checkers_see_it(tmp_path, source, found):
    folder = tmp_path / "xmlsgd" / "folder"
    folder.mkdir(parents=True)
    (folder / "a.py").write_text(source)
    (folder / "b.py").write_text("from .a import f")
    (folder / "c.py").write_text("")
    assert set(cycle(tmp_path / "xmlsgd")) == ({"xmlsgd.folder.a", "xmlsgd.folder.b"} if found else set())
