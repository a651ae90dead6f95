"""Which kernels have changed since they last ran on a GPU: `python -m benchmarks.gpu.changes`.

A kernel's stamp is the hash of its source and of all that it uses, without comments; results keep the stamps of the
kernels that they are about.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from xmlsgd.devices.cuda.kernels import kernel_source

from ..report import RESULTS

_FUNCTION = re.compile(
    r'^(?:template <[^>]*>\n)?(?P<kind>extern "C" __global__|__device__)[^;{]*?(?P<name>\w+)\([^)]*\)\s*'
    r"\{(?:[^\n]*\}|\n.*?^\})$",
    re.MULTILINE | re.DOTALL,
)
_MACRO = re.compile(r"^#define (?P<name>\w+)(?:[^\n]*\\\n)*[^\n]*$", re.MULTILINE)


def kernel_stamps(source: str) -> dict[str, str]:
    """Return the stamp of each kernel of a CUDA source."""
    source = re.sub(r"[ \t]*//[^\n]*", "", source)
    functions = list(_FUNCTION.finditer(source))
    parts = {found["name"]: found[0] for found in (*functions, *_MACRO.finditer(source))}
    common = _MACRO.sub("", _FUNCTION.sub("", source))  # types and numbers, which any kernel may use
    kernels = [found["name"] for found in functions if found["kind"] != "__device__"]
    return {name: _stamp(common, _used(name, parts)) for name in kernels}


def changed(result: dict[str, Any], stamps: dict[str, str]) -> list[str]:
    """Return the kernels whose stamp is not the one in a result of `python -m benchmarks.gpu`."""
    known = result["gpu"].get("kernels", {})
    return [name for name, stamp in stamps.items() if known.get(name) != stamp]


def summary(results: Path) -> list[str]:
    """Return a line for each GPU of which there are results in the folder."""
    stamps, lines = kernel_stamps(kernel_source(tensor_cores=True, hopper=True)), []
    for file in sorted(results.glob("gpu-*.json")):
        result = json.loads(file.read_text())
        names = changed(result, stamps)
        what = f"{len(names)} of {len(stamps)} kernels: {', '.join(names)}" if names else "no kernel"
        lines.append(f"{result['gpu']['gpu']}: changed since they ran there: {what}")
    return lines or [f"none of the {len(stamps)} kernels has run on a GPU"]


def _used(name: str, parts: dict[str, str]) -> list[str]:
    """Return the texts of a function or macro and of all that these name, and so on."""
    found, open_ = {name}, [name]
    while open_:
        more = set(re.findall(r"\w+", parts[open_.pop()])) & parts.keys() - found
        found |= more
        open_ += more
    return [parts[one] for one in sorted(found)]


def _stamp(common: str, texts: list[str]) -> str:
    words = " ".join("\n".join([common, *texts]).split())
    return hashlib.sha256(words.encode()).hexdigest()[:12]


if __name__ == "__main__":
    print(*summary(RESULTS), sep="\n")
