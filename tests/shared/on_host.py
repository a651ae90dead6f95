"""A device with a memory of its own that takes arrays of the process."""

from __future__ import annotations

import functools

import numpy as np

from xmlsgd.devices.base import EXACT


def _started(operation):
    """Return an operation that starts its device."""

    @functools.wraps(operation)
    def inside(self, *arguments):
        with self.start():
            return operation(self, *arguments)

    return inside


class OnHost:
    """A device whose operations take and change arrays of the process: they travel there and back."""

    def __init__(self, device):
        self.device, self.bfloat16 = device, device.bfloat16
        self.start, self.load_kernels = device.start, device.load_kernels

    def _there(self, *arrays):
        return [self.device.to_device(np.ascontiguousarray(array)) for array in arrays]

    def _layer(self, layer):
        return type(layer)(*self._there(*layer))

    def _back(self, placed, arrays):
        for there, here in zip(placed, arrays, strict=True):
            if here.flags.writeable:
                here[...] = self.device.to_host(there)

    def to_device(self, flat):
        return flat

    @_started
    def take(self, layer, active):
        there = self._layer(layer)
        parts = zip(self.device.take(there, active), there, layer, strict=True)
        return type(layer)(*(here if new is old else self.device.to_host(new) for new, old, here in parts))

    @_started
    def put(self, part, layer, active):
        there = self._layer(layer)
        both = zip(part, there, layer, strict=True)
        parts = [old if new is before else self.device.to_device(new) for new, old, before in both]
        self.device.put(type(layer)(*parts), there, active)
        self._back(there, layer)

    @_started
    def through_relu(self, dA, A, factor):
        return self.device.to_host(self.device.through_relu(*self._there(dA, A), factor))

    @_started
    def drop(self, A, dropout):
        (there,) = self._there(A)
        self.device.drop(there, dropout)
        self._back([there], [A])

    @_started
    def input_forward(self, X, rows, layer):
        return self.device.to_host(self.device.input_forward(X, rows, self._layer(layer)))

    @_started
    def dense_forward(self, A, layer):
        return self.device.to_host(self.device.dense_forward(*self._there(A), self._layer(layer)))

    @_started
    def output_step(self, A, targets, layer, loss, update, rounding=EXACT):
        there = self._layer(layer)
        value, dA = self.device.output_step(*self._there(A), targets, there, loss, update, rounding)
        self._back(there, layer)
        return float(value), self.device.to_host(dA)

    @_started
    def dense_step(self, A, dZ, layer, update):
        there = self._layer(layer)
        dA = self.device.dense_step(*self._there(A, dZ), there, update)
        self._back(there, layer)
        return self.device.to_host(dA)

    @_started
    def input_step(self, X, rows, dZ, layer, update):
        there = self._layer(layer)
        self.device.input_step(X, rows, *self._there(dZ), there, update)
        self._back(there, layer)

    @_started
    def top_k(self, A, layer, k, floor=None):
        return self.device.top_k(*self._there(A), self._layer(layer), k)
