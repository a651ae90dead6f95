"""Export the network of a model as ONNX."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .. import __version__
from ..data.files.atomic import atomic_file
from ..errors import DataError, optional_module, warn
from .classifier import XMLClassifier
from .fitted import FittedModel

MAX_ONNX_BYTES = 2**31 - 1  # of a protocol buffer
OPSET, IR = 13, 8  # of 2020 and 2021: every ONNX runtime runs these


def export_onnx(model: XMLClassifier, path: str | PathLike[str]) -> None:
    """Write the network of a model as ONNX: from sparse rows to the k best labels and their logits.

    The inputs are "features", int64 (n, m), and "values", float32 (n, m): the features of each row and their values,
    padded to the longest row by any feature with value 0; and "k", int64 (1,). The outputs are "labels", int64 (n, k),
    the columns of the best labels in order, and "scores", float32 (n, k), their logits. Only the rows of W0 of these
    features are read, so that the cost does not depend on the number of all features. Weights are float32.

    Parameters
    ----------
    model : XMLClassifier
        A fitted model. If it has candidates, a warning says that its scores need more than the network.
    path : path
        The file.

    Raises
    ------
    DataError
        If the model is an ensemble or has landmarks, or its network is larger than an ONNX file can be, 2 GB.
    MissingPackage
        If the package onnx is not installed.
    """
    onnx = optional_module("onnx", "onnx")
    check_is_fitted(model)
    if hasattr(model, "estimators_"):
        raise DataError("model: must be one classifier for ONNX, got an ensemble; export its estimators_ one by one")
    fitted = model.fitted_
    if fitted.features.dense is not None:
        raise DataError("model: has landmarks, which ONNX does not hold; for the network alone, fit with candidates=0")
    size = 4 * fitted.network.layout.size
    if size > MAX_ONNX_BYTES - (1 << 20):
        raise DataError(f"model: must have at most 2 GB of weights for ONNX, got {size / 1e9:.1f} GB; use its arrays")
    whole = onnx.helper.make_model(
        _graph(onnx, fitted), producer_name="xmlsgd", producer_version=__version__,
        ir_version=IR, opset_imports=[onnx.helper.make_opsetid("", OPSET)],
    )  # fmt: skip
    with atomic_file(path) as stream:
        stream.write(whole.SerializeToString())
    if fitted.candidates is not None:
        warn(
            f"{path}: holds the network alone; scores of this model also need neighbors, co-occurrence, linear "
            "classifiers and stacking, which ONNX does not hold"
        )


def _graph(onnx: Any, fitted: FittedModel) -> Any:
    """Return the graph of a model's network, with its parameters as constants."""
    helper, kinds, network = onnx.helper, onnx.TensorProto, fitted.network
    arrays = {**network.layout.views(fitted.float_params), "axis": np.array([1])}
    nodes = []
    if fitted.features.damped:
        arrays["damping"] = np.array([0.75], np.float32)  # as `damped_values`
        nodes = [
            helper.make_node("Abs", ["values"], ["sizes"]),
            helper.make_node("Pow", ["sizes", "damping"], ["damped_sizes"]),
            helper.make_node("Sign", ["values"], ["signs"]),
            helper.make_node("Mul", ["damped_sizes", "signs"], ["read"]),
        ]
    nodes += [
        helper.make_node("Gather", ["W0", "features"], ["rows"]),
        helper.make_node("Unsqueeze", ["read" if fitted.features.damped else "values", "axis"], ["row"]),
        helper.make_node("MatMul", ["row", "rows"], ["product"]),
        helper.make_node("Squeeze", ["product", "axis"], ["xW0"]),
        helper.make_node("Add", ["xW0", "b0"], ["z0"]),
    ]
    for i in range(1, len(network.hidden) + 1):
        nodes.append(helper.make_node("Relu", [f"z{i - 1}"], [f"a{i}"]))
        nodes.append(helper.make_node("Gemm", [f"a{i}", f"W{i}", f"b{i}"], [f"z{i}"], transB=1))
    nodes.append(helper.make_node("TopK", [f"z{len(network.hidden)}", "k"], ["scores", "labels"]))
    inputs = [
        helper.make_tensor_value_info("features", kinds.INT64, ["n", "m"]),
        helper.make_tensor_value_info("values", kinds.FLOAT, ["n", "m"]),
        helper.make_tensor_value_info("k", kinds.INT64, [1]),
    ]
    outputs = [
        helper.make_tensor_value_info("labels", kinds.INT64, ["n", "best"]),
        helper.make_tensor_value_info("scores", kinds.FLOAT, ["n", "best"]),
    ]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    return helper.make_graph(nodes, "network", inputs, outputs, constants)
