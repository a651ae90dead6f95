"""Compare optimizers and losses on one network with `train()`, which takes every part explicitly.

    python examples/compare_optimizers.py

The parts are a job (data, network, optimizer), an algorithm (batches and merges), an executor (where steps run, and
whose clock counts) and a schedule (epochs and learning rate). `Measure` evaluates the parameters that `train` returns,
`Scorer` ranks labels by them. Adaptive optimizers should be ahead, with a P@1 of about 70.
"""

from __future__ import annotations

from xmlsgd import Job, Measure, Schedule, Scorer, make_xmc, train
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.synthetic import split_rows
from xmlsgd.devices.cpu import CPU
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD, Adagrad, Adam, Momentum, RowRMSprop
from xmlsgd.training.executors.serial import Serial

OPTIMIZERS = ((Adam(), 4e-3), (Adagrad(), 0.05), (RowRMSprop(), 4e-3), (Momentum(), 0.05), (SGD(), 0.5))


def main() -> None:
    rows, test = split_rows(make_xmc(4000, 1000, 300, nnz_per_row=20, labels_per_row=3, random_state=0))
    device = CPU(n_threads=1)
    print(f"{'loss':<14} {'optimizer':<12} {'P@1':>6} {'loss a row':>11}")
    with device.start():
        for loss in ("bce", "softmax"):
            network = Network(rows.n_features, rows.n_labels, hidden=(64,), loss=loss)
            for optimizer, rate in OPTIMIZERS:
                run = train(Job(rows, network, optimizer), Sequential(64, rate), Serial([device]), Schedule(4))
                last = run.records[-1]
                name = type(optimizer).__name__.lower()
                p_at_1 = Measure(test, network, device)(run.params)["P@1"]
                print(f"{loss:<14} {name:<12} {p_at_1:6.2f} {last['loss']:11.3f}")
    labels, _ = Scorer(network, run.params, device).top_k(test.X.span(0, 1), k=5)
    print(f"labels of the first test row: {test.Y.row(0)[0]}; the last model ranks first: {labels[0]}")


if __name__ == "__main__":
    main()
