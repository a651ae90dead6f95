"""PyTorch on the same shapes, in a process of its own: `python -m benchmarks.gpu.torch_steps eager compiled`.

EmbeddingBag -> relu -> Linear under bfloat16 autocast, cross entropy by gathered log-softmax, or BCE, fused descent;
gradients of the bag dense or sparse, of which the faster counts. A line of JSON for each result, at once.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import torch

from xmlsgd.data.csr import CSR

from .steps import POOL, Shape, shapes
from .target import Target

SECONDS = 1.5  # of each measurement


class Network(torch.nn.Module):
    """One hidden layer over sparse rows; loss out."""

    def __init__(self, shape: Shape, loss: str, sparse: bool) -> None:
        """Make the layers."""
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(
            shape.n_features, shape.hidden, mode="sum", include_last_offset=True, sparse=sparse
        )
        self.bias = torch.nn.Parameter(torch.zeros(shape.hidden))
        self.output = torch.nn.Linear(shape.hidden, shape.n_labels)
        self.loss = loss

    def head(self, summed: torch.Tensor, rows: torch.Tensor, labels: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        """Return the loss; (rows, labels) are the positives, `share` what each counts."""
        Z = self.output(torch.relu(summed + self.bias))
        if self.loss == "softmax":
            return -(torch.log_softmax(Z.float(), dim=1)[rows, labels] * share).sum() / len(summed)
        return (torch.nn.functional.softplus(Z.float()).sum() - Z[rows, labels].float().sum()) / len(summed)


def batches(X: CSR, Y: CSR, shape: Shape, device: str) -> list[dict[str, torch.Tensor]]:
    """Return the batches of the pool, all on the device: nothing travels in a step."""
    found = []
    for i in range(POOL):
        first, last = i * shape.batch, (i + 1) * shape.batch
        x, y = slice(X.indptr[first], X.indptr[last]), slice(Y.indptr[first], Y.indptr[last])
        counts = np.diff(Y.indptr[first : last + 1])
        parts = {
            "indices": X.indices[x].astype(np.int64), "offsets": X.indptr[first : last + 1] - X.indptr[first],
            "values": X.data[x], "rows": np.repeat(np.arange(shape.batch), counts),
            "labels": Y.indices[y].astype(np.int64), "share": np.repeat(1 / counts, counts).astype(np.float32),
        }  # fmt: skip
        found.append({name: torch.from_numpy(np.ascontiguousarray(part)).to(device) for name, part in parts.items()})
    return found


def rate(shape: Shape, loss: str, sparse: bool, compiled: bool, device: str) -> float:
    """Return steps a second; compiling falls into steps that are not counted."""
    torch.manual_seed(0)
    with torch.device(device):  # made there: random numbers of a processor would take longer than the steps
        network = Network(shape, loss, sparse)
    bags = [network.bag.weight]
    rest = [network.bias, *network.output.parameters()]
    optimizers = [torch.optim.SGD(rest, lr=0.01, fused=device == "cuda"), torch.optim.SGD(bags, lr=0.01)]
    torch._dynamo.reset()  # or what one network has taught the compiler slows the next
    head = torch.compile(network.head) if compiled else network.head
    pool = batches(shape.dataset.X, shape.dataset.Y, shape, device)
    for name in ("rows", "labels", "share") if compiled else ():  # as many as a batch has: compiled once
        for batch in pool:
            torch._dynamo.mark_dynamic(batch[name], 0)

    def step(i: int) -> None:
        batch = pool[i % POOL]
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        summed = network.bag(batch["indices"], batch["offsets"], per_sample_weights=batch["values"])
        with torch.autocast(device, dtype=torch.bfloat16):
            value = head(summed, batch["rows"], batch["labels"], batch["share"])
        value.backward()
        for optimizer in optimizers:
            optimizer.step()

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    for i in range(5):
        step(i)
    wait()
    begun, n = time.perf_counter(), 0
    while time.perf_counter() - begun < SECONDS or n < 2:
        for _ in range(4):
            step(n)
            n += 1
        wait()
    return n / (time.perf_counter() - begun)


def main() -> None:
    """Print a result for each loss, shape and mode that the command line names; `--tiny` on the CPU.

    What is compiled has the bag of the faster eager form, for compiling takes longer than measuring.
    """
    tiny = "--tiny" in sys.argv
    device = "cpu" if tiny else "cuda"
    for loss in ("softmax", "bce"):
        for shape in shapes(Target(shim=tiny))[:3]:
            sparse = False
            for mode in [word for word in sys.argv[1:] if word in ("eager", "compiled")]:
                result: dict[str, Any] = {"shape": shape.name, "hidden": shape.hidden, "batch": shape.batch}
                result |= {"loss": loss, "mode": mode, "torch": torch.__version__}
                try:
                    if mode == "eager":
                        rates = [rate(shape, loss, form, False, device) for form in (False, True)]
                        result["steps_per_second"], sparse = max(rates), rates[1] > rates[0]
                    else:
                        result["steps_per_second"] = rate(shape, loss, sparse, True, device)
                except RuntimeError as error:  # out of memory, or what the compiler cannot do
                    result["failure"] = str(error).partition("\n")[0]
                print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
