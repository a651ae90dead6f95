"""Import the public names of a package when they are first used (PEP 562)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def lazy_names(
    package: dict[str, Any], names_of_module: Mapping[str, Sequence[str]]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package, given its `globals()` and the names by module."""
    module_of_name = {name: module for module, names in names_of_module.items() for name in names}

    def import_name(name: str) -> Any:
        """Import a public name from its module; later accesses do not come here."""
        if name not in module_of_name:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        value = getattr(import_module(f".{module_of_name[name]}", package["__name__"]), name)
        package[name] = value
        return value

    def all_names() -> list[str]:
        """Return the public names, imported or not, beside what the package holds."""
        return sorted({*package, *module_of_name})

    return [*module_of_name], import_name, all_names
