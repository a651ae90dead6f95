"""Parse one text file with one library, in a process of its own; runs in the environment of that library."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from .runner import peak_memory_bytes, versions


def with_ours(path: Path, threads: int) -> tuple[int, float]:
    """Return entries of X and seconds of `read_libsvm`; its kernels are loaded before."""
    from xmlsgd.data.formats.libsvm import read_libsvm

    with tempfile.TemporaryDirectory() as folder:
        few = Path(folder, "few.txt")
        few.write_text("1 8 4\n0,3 1:0.5 7:1\n")
        read_libsvm(few, n_threads=threads)
    start = time.perf_counter()
    dataset = read_libsvm(path, n_threads=threads)
    return dataset.X.nnz, time.perf_counter() - start


def with_store(path: Path, threads: int) -> tuple[int, float]:
    """Return entries of X and seconds of `open_store`."""
    from xmlsgd.data.formats.store import open_store

    start = time.perf_counter()
    dataset = open_store(path)
    return dataset.X.nnz, time.perf_counter() - start


def with_sklearn(path: Path, threads: int) -> tuple[int, float]:
    """Return entries of X and seconds of `load_svmlight_file`; the file must have no header."""
    from sklearn.datasets import load_svmlight_file

    start = time.perf_counter()
    X, _ = load_svmlight_file(str(path), multilabel=True, zero_based=True)
    return X.nnz, time.perf_counter() - start


def with_napkinxc(path: Path, threads: int) -> tuple[int, float]:
    """Return entries of X and seconds of `load_libsvm_file`, as it comes."""
    from napkinxc.datasets import load_libsvm_file

    start = time.perf_counter()
    X, _ = load_libsvm_file(str(path))
    return X.nnz, time.perf_counter() - start


PARSERS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "ours": (with_ours, ("numba", "numpy")),
    "store": (with_store, ("numpy",)),
    "sklearn": (with_sklearn, ("scikit-learn", "numpy", "scipy")),
    "napkinxc": (with_napkinxc, ("napkinxc", "numpy", "scipy")),
}


def main() -> None:
    """Parse once."""
    parser = argparse.ArgumentParser(description="Parse one file; meant to be started by the benchmarks.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="JSON file")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--parser", choices=sorted(PARSERS), required=True)
    args = parser.parse_args()
    call, packages = PARSERS[args.parser]
    nnz, seconds = call(args.path, args.threads)
    result = {"seconds": seconds, "nnz": nnz, "peak_memory_bytes": peak_memory_bytes(), "versions": versions(packages)}
    args.out.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
