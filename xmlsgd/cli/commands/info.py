"""Show versions, the processor, and whether bfloat16 and a GPU can be used."""

from __future__ import annotations

from ..flags import JSON_FILE
from ..machine import gpu, processor, versions
from ..messages import Console
from ..results import write_json

FLAGS = (JSON_FILE,)
INSTEAD = {"": "what is known of a model is in train.json in its folder"}
EXAMPLES = "  xmlsgd info --json -"


def run(console: Console) -> None:
    """Print a line for each fact."""
    facts = {**versions(), **processor(), "gpu": gpu()}
    console.answer("\n".join(f"{name:<14} {value}" for name, value in facts.items()))
    write_json(console.json, facts)
