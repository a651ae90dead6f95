"""A format of files, and one of documents, is added as CONTRIBUTING.md says."""

from __future__ import annotations

import numpy as np
import pytest

from xmlsgd import DataError, XMLClassifier, load_file, make_xmc
from xmlsgd.cli import main
from xmlsgd.data import formats
from xmlsgd.data.document_formats import DOCUMENT_FORMATS
from xmlsgd.data.documents import READERS, Row
from xmlsgd.data.formats.libsvm import write_libsvm
from xmlsgd.data.loading import convert

QUICK = ("--hidden", "4", "--candidates", "0", "--epochs", "1", "--quiet")


@pytest.fixture(scope="module")
def data():
    return make_xmc(200, 60, 20, nnz_per_row=5, labels_per_row=2, random_state=0)


def test_a_file_format_is_one_file(add_part, data, tmp_path):
    add_part(
        formats,
        "pairs",
        '''
        """Comma-separated entries, `row,x,feature,value` and `row,y,label`, in a file `*.pairs`."""

        import numpy as np
        import scipy.sparse as sp

        from ..csr import CSR, Dataset
        from .base import Format, FileRows


        class Pairs(Format):
            """A file of entries; its first line has the numbers of rows, features and labels."""

            files = "train.pairs (test.pairs)"

            def recognizes(self, path):
                """Return whether a path is such a file."""
                return path.suffix == ".pairs"

            def find(self, folder):
                """Return the files of the parts."""
                found = {part: folder / f"{part}.pairs" for part in ("train", "test")}
                return {part: file for part, file in found.items() if file.is_file()}

            def read(self, path, options):
                """Read the rows."""
                first, *lines = (line.split(",") for line in path.read_text().splitlines())
                n_rows, n_features, n_labels = map(int, first)
                X, Y = np.zeros((n_rows, n_features), np.float32), np.zeros((n_rows, n_labels), np.float32)
                for row, kind, column, *value in lines:
                    if kind == "x":
                        X[int(row), int(column)] = float(value[0])
                    else:
                        Y[int(row), int(column)] = 1
                return FileRows(Dataset(*(CSR.from_scipy(sp.csr_array(each)) for each in (X, Y))), path)

            def write(self, path, train, test, single):
                """Write the training split."""
                X, Y = (each.to_scipy().tocoo() for each in (train.X, train.Y))
                lines = [f"{train.n_rows},{train.n_features},{train.n_labels}"]
                lines += [f"{i},x,{j},{v!r}" for i, j, v in zip(X.row, X.col, X.data.tolist())]
                lines += [f"{i},y,{j}" for i, j in zip(Y.row, Y.col)]
                path.write_text("\\n".join(lines))


        FORMAT = Pairs()
        ''',
    )
    source = tmp_path / "train.txt"
    write_libsvm(data, source)
    assert main(["convert", str(source), str(tmp_path / "train.pairs"), "--to", "pairs", "--quiet"]) == 0
    found = load_file(tmp_path / "train.pairs")
    np.testing.assert_array_equal(found.Y.to_scipy().toarray(), data.Y.to_scipy().toarray())
    np.testing.assert_allclose(found.X.to_scipy().toarray(), data.X.to_scipy().toarray(), rtol=1e-6)
    words = ["train", str(tmp_path / "train.pairs"), "--out", str(tmp_path / "model"), *QUICK]
    assert main(words) == 0


def test_a_format_may_be_read_alone(add_part, data, tmp_path):
    add_part(
        formats,
        "dense",
        '''
        """Dense features with one label each: `label,feature,feature,...` in files `*.dense`."""

        import numpy as np
        import scipy.sparse as sp

        from ..csr import CSR, Dataset
        from .base import Format, FileRows


        class Dense(Format):
            """Lines of numbers."""

            files = "train.dense"

            def recognizes(self, path):
                """Return whether a path is such a file."""
                return path.suffix == ".dense"

            def find(self, folder):
                """Return the training rows."""
                return {"train": file for file in folder.glob("train.dense")}

            def read(self, path, options):
                """Read the rows."""
                table = np.loadtxt(path, delimiter=",", ndmin=2)
                Y = np.eye(int(table[:, 0].max()) + 1)[table[:, 0].astype(int)]
                return FileRows(Dataset(*(CSR.from_scipy(sp.csr_array(each)) for each in (table[:, 1:], Y))), path)


        FORMAT = Dense()
        ''',
    )
    file, rows = tmp_path / "train.dense", tmp_path / "rows.txt"
    file.write_text("1,0.5,0\n0,0,2\n")
    np.testing.assert_array_equal(load_file(file).X.to_scipy().toarray(), [[0.5, 0], [0, 2]])
    with pytest.raises(DataError, match=r"train\.dense: zero_based is for text files only"):
        load_file(file, zero_based=False)
    write_libsvm(data, rows)
    with pytest.raises(DataError, match="cannot be written as dense, which is only read"):
        convert(rows, tmp_path / "out", to="dense")


def test_a_format_of_documents_is_a_reader_and_its_suffixes(monkeypatch, tmp_path):
    def read_blocks(path, labelled, options):
        """Yield texts whose labels, if any are wanted, are in the line before."""
        lines = path.read_text().splitlines()
        for number in range(0, len(lines), 2):
            yield Row(number + 1, lines[number + 1], tuple(lines[number].split()) if labelled else ())

    monkeypatch.setitem(READERS, "blocks", read_blocks)
    monkeypatch.setitem(DOCUMENT_FORMATS, "blocks", (".blocks",))
    file, out = tmp_path / "train.blocks", tmp_path / "model"
    file.write_text("a b\nfirst words\na\nmore words\n")
    assert main(["train", str(file), "--out", str(out), *QUICK]) == 0
    assert XMLClassifier.load(out).classes_.tolist() == ["a", "b"]
