"""The documentation site: every public name has a page. `.ci/run` builds the site, where a warning is an error."""

from __future__ import annotations

import ast
import importlib
import inspect
import re

import pytest

from shared.paths import ROOT
from xmlsgd.algorithms import algorithm_class, algorithm_names

REFERENCE = (ROOT / "docs" / "reference.rst").read_text(encoding="utf-8")
WITH_PAGE = re.findall(r"^   (xmlsgd\.[\w.]+)$", REFERENCE, re.MULTILINE)


def resolved(name):
    """Return what a dotted name stands for."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def public_names(module):
    """Return the names of a package that its users import, but for those of its modules and its version."""
    package = importlib.import_module(module)
    names = getattr(package, "__all__", None) or [name for name in vars(package) if not name.startswith("_")]
    return [name for name in names if name != "__version__" and not inspect.ismodule(getattr(package, name))]


def names_in_pages():
    """Yield the names that the Python of pages and examples imports from the package."""
    pages = "\n".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")])
    code = "\n".join(re.findall(r"^>>> (from xmlsgd.*)$", pages, re.MULTILINE))
    for source in [code, *(path.read_text(encoding="utf-8") for path in ROOT.glob("examples/*.py"))]:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("xmlsgd"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def lacking(names):
    """Return those of the names whose object has no page in the reference."""
    documented = [resolved(name) for name in WITH_PAGE]
    return [name for name in names if not any(resolved(name) is each for each in documented)]


@pytest.mark.parametrize("module", ["xmlsgd", "xmlsgd.estimators", "xmlsgd.metrics"])
def test_every_public_name_of_a_package_has_a_page(module):
    names = [f"{module}.{name}" for name in public_names(module)]
    assert len(names) >= 3
    assert lacking(names) == []


def test_every_algorithm_has_a_page():
    assert lacking(f"xmlsgd.algorithms.{name}.{algorithm_class(name).__name__}" for name in algorithm_names()) == []


def test_every_name_that_pages_and_examples_import_has_a_page():
    names = sorted(set(names_in_pages()))
    assert len(names) >= 20
    assert lacking(names) == []


def test_no_object_has_two_pages():
    assert len({id(resolved(name)) for name in WITH_PAGE}) == len(WITH_PAGE)
