"""The bytes that a kernel must move: what it reads and writes once, and what no cache can keep in between.

For matrix products, the operations too.
"""

from __future__ import annotations

from typing import Any

# Of kernels that stream: how often each array is read or written, as far as it holds valid columns.
STREAMED = {
    "pack": {"x": 1, "out": 1},
    "negatives": {"Z": 1, "G": 1},
    "exponentials": {"E": 2},
    "exponential_sums": {"E": 1},
    "product_exponentials": {"W": 1, "E": 1, "sums": 1},
    "common_reference": {"sums": 1},
    "hopper_exponentials": {"E": 1, "sums": 1},
    "product_weights": {"E": 1, "W": 2},
    "rows_update": {"W": 2, "dW": 1, "s": 2, "t": 2},
    "biases_update": {"partial": 1},
    "column_sums": {"dZ": 1},
    "through_relu": {"dA": 2, "A": 1},
    "finish_hidden": {"parts": 1, "dA": 1, "label_sum": 1},
    "sum_parts": {"parts": 1, "out": 1},
    "row_factors": {"A": 1, "scaled": 1},
}
GATHERED = {"input_forward": 1, "input_update": 1}  # rows of H floats an entry of the batch; caches keep some


def traffic(name: str, arguments: dict[str, Any], entries: float) -> float:
    """Return the bytes of a launch with these arguments on a batch of so many entries; 0 where nobody has counted."""
    if name in GATHERED:
        return entries * (4.0 * arguments["H"] + 8)
    stride = arguments.get("stride")

    def moved(array: Any) -> float:
        """Return the bytes of an array; of one whose rows have all labels, those of the chunk."""
        of_chunk = "C" in arguments and stride is not None and array.shape[-1] == stride
        return float(array.nbytes) * (arguments["C"] / stride if of_chunk else 1.0)

    mapped = 0.0
    if name == "hopper_exponentials":  # which reads W (C, width) by a map, no array
        mapped = 2.0 * arguments["C"] * arguments["width"]
    return mapped + sum(times * moved(arguments[array]) for array, times in STREAMED.get(name, {}).items())


def operations(name: str, arguments: dict[str, Any]) -> float:
    """Return the floating-point operations of a launch that multiplies matrices, 0 of any other."""
    columns = {"product_exponentials": "width", "hopper_exponentials": "width", "product_weights": "H"}.get(name)
    return 2.0 * arguments["B"] * arguments["C"] * arguments[columns] if columns else 0.0
