"""The built-in data set: what becomes a row, the split by file, the cache, and that its labels can be learned."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from shared.paths import DATA, ROOT
from xmlsgd.data import python_functions
from xmlsgd.data.python_functions import (
    Function,
    functions_of,
    parse_functions,
    python_functions_texts,
    select_labels,
    source_files,
    split,
    vectorized,
)
from xmlsgd.data.text import Documents, read_raw_text
from xmlsgd.errors import DataError

SOURCE = '''
@decorated(1)
def readJSON_file(path, *parts, encoding="utf8", **kwargs):
    """Read HTMLParser data: café 42."""
    def inner_helper(x):
        return json.loads(x)
    with open(path) as f:
        return inner_helper(f.read()), (lambda: 0)(), table[0](), len(f), self.assertEqual(1, 1)

class Store:
    async def put_item(self, key, cls):
        await self.queue.put(key)
        raise KeyError(key)

    def no_calls(self): return 1
    def only_builtins(self): return len(self)
    def close(self): shut()
'''


def test_words_come_from_name_arguments_and_docstring_and_labels_from_calls():
    assert functions_of(SOURCE) == [
        (
            "read json file path parts encoding kwargs read html parser data caf 42",
            ("decorated", "inner_helper", "loads", "read"),
        ),
        ("inner helper", ("loads",)),
        ("put item key", ("put",)),
    ]


def test_bytes_follow_the_declared_encoding():
    source = "# -*- coding: latin-1 -*-\ndef get_name(ort): return caf\u00e9(ort)\n"
    assert functions_of(source.encode("latin-1")) == [("get name ort", ("caf\u00e9",))]


def test_invalid_escapes_in_a_source_give_no_warning():
    assert functions_of('def match_digits(text): return match("\\d", text)') == [("match digits text", ("match",))]


def test_parse_skips_what_it_cannot_read_and_what_it_has_seen(tmp_path):
    contents = {
        "a.py": b"def get_name(key): return find(key)",
        "b.py": b"def get_name(key): return find(key)\ndef get_name(key): return search(key)",
        "c.py": b"def broken(",
        "d.py": b"\0\xff\xfe",
        "e.py": b"x = " + b"(" * 5000 + b")" * 5000,
        "f.py": b"x = " + b"-" * 200_000 + b"1",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    files = [(f"p/{name}", tmp_path / name) for name in [*contents, "missing.py"]]
    assert parse_functions(files) == [
        Function("p/a.py", "get name key", ("find",)),
        Function("p/b.py", "get name key", ("search",)),
    ]


def test_source_files_are_sorted_python_files_of_installed_packages(tmp_path, monkeypatch):
    for name in ("b.py", "a.py", "tests/t.py", "_vendor/v.py", "z.txt", "sub/c.py"):
        path = tmp_path / "tinypackage" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "tinypackage" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    names = [name for name, _ in source_files(["tinypackage", "package_that_is_absent"])]
    ours = [name.removeprefix("tinypackage/") for name in names if not name.startswith("stdlib/")]
    assert ours == ["__init__.py", "a.py", "b.py", "sub/c.py", "tests/t.py"]
    assert "stdlib/json/decoder.py" in names
    assert not any("/test/" in name or "site-packages" in name for name in names)
    assert len(names) == len(set(names))


def test_all_functions_of_a_file_lie_on_one_side_chosen_by_its_name():
    functions = [Function(f"p/{i % 50}.py", f"text {i}", ("call",)) for i in range(200)]
    train, test = split(functions, one_in=5)
    of_file = {f.text: f.file for f in functions}
    train_files, test_files = ({of_file[text] for text in part.texts} for part in (train, test))
    assert not train_files & test_files
    assert len(train.texts) + len(test.texts) == 200
    assert test_files == {
        f"p/{i}.py"
        for i in range(50)
        if int.from_bytes(hashlib.blake2b(f"p/{i}.py".encode(), digest_size=8).digest(), "little") % 5 == 0
    }


def test_split_without_functions_is_refused():
    with pytest.raises(DataError, match="needs the source files of Python, got 0 functions"):
        split([], 10)


def test_rare_labels_are_counted_in_the_training_part_only():
    train = Documents(["a", "b", "c"], [("x", "y"), ("x",), ("z",)])
    test = Documents(["d", "e"], [("x", "z"), ("y", "z")])
    assert select_labels(train, test, 2) == (Documents(["a", "b"], [("x",), ("x",)]), Documents(["d"], [("x",)]))


@pytest.fixture(scope="module")
def texts():
    """The functions of the standard library alone: those of packages take longer to parse."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(python_functions, "PACKAGES", ())
        return python_functions_texts()


@pytest.fixture(scope="module")
def rows(texts):
    """Train and test rows, and the vectorizer that made them."""
    return vectorized(*texts)


@pytest.fixture(scope="module")
def sets(rows):
    return rows[:2]


def test_datasets_agree_with_the_texts(texts, rows):
    (train, test, vectorizer), (train_texts, test_texts) = rows, texts
    assert (train.n_rows, test.n_rows) == (len(train_texts.texts), len(test_texts.texts))
    assert train.n_features == test.n_features == vectorizer.n_features
    assert train.n_labels == test.n_labels == len(train.label_names)
    assert list(train.label_names) == list(test.label_names) == sorted(train.label_names)
    np.testing.assert_array_equal(vectorizer.transform(test_texts.texts[:50]).data, test.X.data[: test.X.indptr[50]])
    for i in (0, 7, test.n_rows - 1):
        assert {test.label_names[label] for label in test.Y.row(i)[0]} == set(test_texts.labels[i])


def test_each_label_has_five_training_rows_and_each_row_a_label(sets):
    train, test = sets
    assert np.bincount(train.Y.indices, minlength=train.n_labels).min() >= 5
    assert min(np.diff(train.Y.indptr).min(), np.diff(test.Y.indptr).min()) >= 1
    assert train.n_rows > 3000
    assert train.n_labels > 300


def test_nearest_centroid_beats_the_most_frequent_label(sets):
    train, test = sets
    X, Y, X_test, Y_test = (m.to_scipy() for m in (train.X, train.Y, test.X, test.Y))
    counts = np.asarray(Y.sum(axis=0)).ravel()
    centroids = (Y.T @ X).toarray()
    centroids *= (np.log1p(counts) / np.linalg.norm(centroids, axis=1))[:, None]
    best = np.argmax(X_test @ centroids.T, axis=1)
    hits = Y_test.toarray()[np.arange(test.n_rows), best].mean()
    assert hits > 1.2 * Y_test.toarray()[:, np.argmax(counts)].mean()


def test_sample_is_written_in_all_its_forms(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, DATA / "make_sample.py", tmp_path], check=True, env=environment)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(
        ["train.txt", "test.txt", "train_raw.txt", "test_raw.txt", "labels.txt", "features.txt"]
    )
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 1_000_000


@pytest.mark.parametrize("part", ["train", "test"])
def test_forms_of_the_sample_hold_the_same_rows(part):
    raw = read_raw_text(DATA / f"{part}_raw.txt", labelled=True)
    names = read_raw_text(DATA / "labels.txt").texts
    words = read_raw_text(DATA / "features.txt").texts
    header, *lines = (DATA / f"{part}.txt").read_text().splitlines()
    assert header == f"{len(raw.texts)} {len(words)} {len(names)}"
    for line, text, labels in zip(lines, raw.texts, raw.labels, strict=True):
        ids, _, features = line.partition(" ")
        assert {names[int(label)] for label in ids.split(",")} == set(labels)
        values = {words[int(f)]: float(v) for f, v in (entry.split(":") for entry in features.split())}
        assert set(values) == set(text.split()) & set(words)
        assert not values or sum(v * v for v in values.values()) == pytest.approx(1, abs=2e-3)
