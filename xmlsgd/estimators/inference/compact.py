"""Compact parameters: a model in a quarter of the bytes, for prediction only, with int8 weights and narrow integers.

Each row of weights has one scale; biases stay float32. Rounding hardly changes P@k (docs/decisions/prediction.md).
Kernels read the arrays directly from the memory-mapped files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...data.files.folders import FolderArrays
from ...devices.base import Layer
from ...devices.compact import CompactLayer, compacted, widened
from ...nn.parameters import Layout, zeros


@dataclass(frozen=True, eq=False)
class CompactParams:
    """Parameters of a compact model: int8 weights with a scale per row, and float32 biases.

    arrays : all arrays of the model, by name. candidates : description of its candidate model, if any, so that the
    model can be saved again unchanged. path : folder of the model.
    """

    layout: Layout
    arrays: dict[str, np.ndarray]
    candidates: dict[str, Any] | None
    path: Path

    @classmethod
    def of(cls, layout: Layout, saved: FolderArrays, candidates: dict[str, Any] | None) -> CompactParams:
        """Return saved parameters; raise `ModelFileError` for arrays that `compact_params` cannot have made."""
        for name, shape in layout.shapes.items():
            if len(shape) == 1:
                saved.finite(name, *shape)
            else:
                saved.array(f"{name}_int8", np.int8, *shape)
                saved.finite(f"{name}_scales", shape[0])
        return cls(layout, saved.arrays, candidates, saved.path)

    def layers(self) -> list[Layer | CompactLayer]:
        """Return the layers: the first and the last in int8, those between, which are small, in float32."""
        none, last = np.zeros((1, 1), np.float32), len(self.layout.shapes) // 2 - 1
        layers: list[Layer | CompactLayer] = []
        for i in range(last + 1):
            small = CompactLayer(*(self.arrays[name] for name in (f"W{i}_int8", f"W{i}_scales", f"b{i}")))
            between = 0 < i < last
            layers.append(Layer(widened(small), small.b, none, none[0], none, none[0]) if between else small)
        return layers

    def expanded(self) -> np.ndarray:
        """Return the parameters as a flat vector, float32 (n_params,)."""
        flat = zeros(self.layout.size)
        for name, tensor in self.layout.views(flat).items():
            if tensor.ndim == 1:
                tensor[:] = self.arrays[name]
            else:
                np.multiply(self.arrays[f"{name}_int8"], self.arrays[f"{name}_scales"][:, None], out=tensor)
        return flat


def compact_params(params: np.ndarray, layout: Layout) -> dict[str, np.ndarray]:
    """Return the arrays of `CompactParams`, by name, given parameters, float32 (n_params,)."""
    small = {}
    for name, tensor in layout.views(params).items():
        if tensor.ndim == 1:
            small[name] = tensor
        else:
            starts = np.arange(len(tensor) + 1) * tensor.shape[1]
            weights, small[f"{name}_scales"] = compacted(tensor.reshape(-1), starts)
            small[f"{name}_int8"] = weights.reshape(tensor.shape)
    return small
