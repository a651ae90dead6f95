"""Small data sets, and whether two are the same."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xmlsgd.data.csr import CSR, Dataset

FORMS = ("store", "libsvm", "npz", "split")


def csr(dense):
    return CSR.from_scipy(sp.csr_array(dense))


def equal(a, b):
    """Return whether two data sets hold the same rows, shapes and names."""
    pairs = [(getattr(a, M), getattr(b, M)) for M in ("X", "Y")]
    same = all(np.array_equal(getattr(A, k), getattr(B, k)) for A, B in pairs for k in ("indptr", "indices", "data"))
    names = [None if d.label_names is None else list(d.label_names) for d in (a, b)]
    return same and all(A.shape == B.shape for A, B in pairs) and names[0] == names[1]


def example(n=40, F=30, L=20, seed=0):
    rng = np.random.default_rng(seed)
    X, Y = (sp.random_array((n, cols), density=0.2, rng=rng, dtype=np.float32) for cols in (F, L))
    Y.data[:] = 1
    return Dataset(csr(X), csr(Y), [f"label {label}" for label in range(L)])


TRAIN, TEST = example(), example(n=15, seed=1)


def put(folder, **files):
    """Write text files, `__` in a name standing for its dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder
