"""Convert data between formats: text into a store that opens in milliseconds, or any format into any other.

SOURCE is anything that train reads. TARGET is a store, unless --to or its name says otherwise: a name that ends in .txt
(.gz, .bz2, .xz) is a text file of rows. A source with a training and a test split becomes a folder of both.
Raw text becomes rows of words; a store keeps the words, so that a model trained on it reads text. An existing TARGET, a
store or a file, is replaced only with --overwrite; missing folders above it are created.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...data.files.atomic import parents_created
from ...data.formats import format_names
from ..exit_codes import UsageError
from ..flags import DIR, FORMAT_FLAGS, NAME, OVERWRITE, PATH, VECTORIZER_FLAGS, Flag, positional
from ..input_options import InputOptions
from ..messages import STDOUT, Console
from ..output_files import check_apart, check_new, check_parent

FLAGS = (
    positional("source", PATH, "SOURCE", "data in any format"),
    positional("target", PATH, "TARGET", "file or folder for the other format"),
    *FORMAT_FLAGS,
    *VECTORIZER_FLAGS,
    Flag("vectorizer", DIR, "model or store whose words raw text is turned into", "data",
         default_text="the words of SOURCE"),
    Flag("to", replace(NAME, choices=tuple(format_names())), "format of TARGET", "output",
         default_text="by its name"),
    OVERWRITE,
)  # fmt: skip
EXAMPLES = """  xmlsgd convert train.txt.gz store
  xmlsgd convert store rows.txt
  xmlsgd convert new_texts.txt new_rows --vectorizer model"""


def run(
    source: str,
    target: str,
    input_options: InputOptions,
    vectorizer: str | None,
    to: str | None,
    overwrite: bool,
    console: Console,
) -> None:
    """Read the source and write the target."""
    origin, end = Path(source), Path(target)
    if target == STDOUT:
        raise UsageError("TARGET -: convert writes no standard output; name a file or a folder")
    from ...data.formats.base import check_free
    from ...data.loading import convert, format_to_write

    format_to_write(end, to)  # raises an error for a wrong format before anything is read
    check_apart(target, "TARGET", (source, vectorizer, *input_options.files))
    check_parent(target, "TARGET")
    input_options.check_inputs(source)
    if not end.is_file():
        check_free(end)  # raises the errors of writing before anything is read
    check_new(target, "TARGET", overwrite)
    has_texts = not origin.exists() or input_options.document_format(source) is not None
    if has_texts:
        convert_texts(source, end, input_options, vectorizer, to)
    else:
        input_options.refuse_vectorizer_options(f"{source}, which holds numeric features")
        convert(origin, end, to, **input_options.libsvm_options(source))
    console.show(f"{target}: {size_on_disk(end)}")
    if lost := lost_names(origin, end, has_texts):
        console.show(f"not kept there: {' and '.join(lost)}; a store has them")


def lost_names(source: Path, target: Path, has_texts: bool) -> list[str]:
    """Return which names (of labels, of features) the source has and the target has not; texts have both."""
    from ...data.files.manifest import VECTORIZER_FILE
    from ...data.formats.base import LABEL_NAMES

    def files_of(path: Path) -> set[str]:
        return {file.name for file in path.rglob("*")} if path.is_dir() else set()

    named = {LABEL_NAMES: "the names of labels", VECTORIZER_FILE: "the words of features"}
    lost = (set(named) if has_texts else files_of(source)) - files_of(target)
    return [what for file, what in named.items() if file in lost]


def convert_texts(source: str, target: Path, options: InputOptions, vectorizer_of: str | None, to: str | None) -> None:
    """Convert raw text or a named data set."""
    from ...data.csr import Dataset
    from ...data.formats.base import is_store
    from ...data.loading import format_to_write
    from ..sources import read_source

    rows = read_source(source, options, vectorizer_of)
    train, test = rows.train, rows.test
    if test is not None:  # labels that only the test rows have get columns in both
        train = Dataset(train.X, replace(train.Y, n_cols=test.n_labels), test.label_names)
    with parents_created(target):
        format_to_write(target, to).write(target, train, test, single=test is None)
    for folder in (target, target / "train"):
        if rows.vectorizer is not None and is_store(folder):
            rows.vectorizer.to_files(folder)


def size_on_disk(target: Path) -> str:
    """Return the size of a file or folder as text."""
    files = [target] if target.is_file() else [file for file in target.rglob("*") if file.is_file()]
    where = f", a folder of {len(files)} files" if target.is_dir() else ""
    return f"{sum(file.stat().st_size for file in files) / 1e6:,.1f} MB{where}"
