"""Turn data from one form into another: text into a store that opens in milliseconds, or any form into any other.

SOURCE is whatever train takes. TARGET is a store unless its name or --to says otherwise: a name that ends in .txt (.gz,
.bz2, .xz) is a text file of rows. A source with a test part gives a folder with both. Raw text becomes rows of words;
the words are kept beside a store, so that a model trained on it takes text. A TARGET that exists, a store or a file,
is replaced with --overwrite alone; folders above it that are missing are made.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...data.files import open_packed, parents_made, scratch_beside, scratch_folder
from ..failures import UsageError, say
from ..format_options import add_source_arguments, is_raw_text, row_options, texts_told
from ..outputs import add_overwrite, check_above, check_apart, check_new, check_there
from ..parameters import place, whole
from ..results import show

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


FORMS = ("store", "text", "npz", "split")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of the verb."""
    parser.add_argument("source", type=place, metavar="SOURCE", help="data of any form")
    parser.add_argument("target", type=place, metavar="TARGET", help="file or folder that takes the other form")
    add_overwrite(parser)
    parser.add_argument("--to", choices=FORMS, help="form of the target (default: by its name)")
    parser.add_argument(
        "--vectorizer", type=place, metavar="DIR", help="model or store whose words raw text is turned into"
    )
    parser.add_argument(
        "--max-errors", type=whole, default=1, metavar="N", help="list up to N broken lines (default 1)"
    )
    add_source_arguments(parser)


def run(args: Namespace) -> None:
    """Read the source, write the target."""
    source, target = Path(args.source), Path(args.target)
    if args.target == "-":
        raise UsageError("TARGET -: nothing is converted to standard output; name a file or a folder")
    check_apart(args.target, "TARGET", (args.source, args.vectorizer))
    check_above(args.target, "TARGET")
    check_there(args.source)
    from ...data.conversion import convert
    from ...data.store import check_free

    if not target.is_file():
        check_free(target)  # what else it would say at the end, it says now
    check_new(args.target, "TARGET", args)
    of_texts = not source.exists() or is_raw_text(args.source, args, labelled=True)
    if of_texts:
        convert_rows_of(args)
    else:
        if args.max_errors > 1:
            report_errors(args)
        with texts_told(args.source, args):
            convert(source, target, args.to, **row_options(args))
    show(args, f"{args.target}: {size(target)}")
    if gone := not_kept(source, target, of_texts):
        show(args, f"not kept there: {' and '.join(gone)}; a store has them")


def not_kept(source: Path, target: Path, of_texts: bool) -> list[str]:
    """Return what the source knows by name, as texts do (`of_texts`), and the target does not."""
    from ...data.store import LABEL_NAMES
    from ...data.vectorizer import VECTORIZER_FILE

    def files_of(path: Path) -> set[str]:
        return {file.name for file in path.rglob("*")} if path.is_dir() else set()

    named = {LABEL_NAMES: "the names of labels", VECTORIZER_FILE: "the words of features"}
    gone = (set(named) if of_texts else files_of(source)) - files_of(target)
    return [what for file, what in named.items() if file in gone]


def convert_rows_of(args: Namespace) -> None:
    """Convert raw text or a data set that is known by name, by way of a store."""
    from ...data.conversion import convert
    from ...data.store import is_store, write_store
    from ..sources import read_parts

    train, test, vectorizer = read_parts(args.source, args, args.vectorizer)
    target = Path(args.target)
    with parents_made(target), scratch_beside(target) as scratch:
        write_store(train, Path(scratch, "train"))
        if test is not None:
            write_store(test, Path(scratch, "test"))
        convert(scratch if test is not None else Path(scratch, "train"), target, args.to)
    for folder in (target, target / "train"):
        if vectorizer is not None and is_store(folder):
            vectorizer.to_files(folder)


def size(target: Path) -> str:
    """Return the bytes of a file or folder in words."""
    files = [target] if target.is_file() else [file for file in target.rglob("*") if file.is_file()]
    where = f", a folder of {len(files)} files" if target.is_dir() else ""
    return f"{sum(file.stat().st_size for file in files) / 1e6:,.1f} MB{where}"


def report_errors(args: Namespace) -> None:
    """List the broken lines of a text file of rows, all but the last here, and raise the last."""
    from ...data.xmc import is_text
    from ...errors import DataError

    if not is_text(Path(args.source)):
        return
    *before, last = [*errors_of(args.source, row_options(args), args.max_errors), ""]
    if before:
        *before, last = before
        for line in before:
            say(line)
        raise DataError(last)


def errors_of(path: str, options: dict[str, Any], limit: int) -> list[str]:
    """Return the first `limit` errors of a file of rows, by reading on behind each broken line."""
    from ...data.libsvm import read_blocks
    from ...errors import DataError

    found: list[str] = []
    part, skipped = path, 0
    with scratch_folder() as folder:
        while len(found) < limit:
            blocks = read_blocks(part, **options)
            try:
                for _ in blocks:
                    pass
                break
            except DataError as error:
                where = re.fullmatch(re.escape(part) + r":(\d+): (.*)", str(error), re.DOTALL)
                if where is None or where[2].startswith("header"):
                    found += [str(error)] if not found else []  # of the whole file: there is nothing behind it
                    break
                skipped, line = skipped + int(where[1]), int(where[1])
                found.append(f"{path}:{skipped}: {where[2]}")
            options |= {"header": False, "n_features": blocks.n_features, "n_labels": blocks.n_labels}
            rest = str(Path(folder, f"rest-{skipped}"))
            copy_behind(part, line, rest)
            if part != path:
                Path(part).unlink()
            part = rest
    return found


def copy_behind(path: str, line: int, target: str) -> None:
    """Copy what follows a line of a file that may be packed."""
    with open_packed(path) as stream, open(target, "wb") as rest:
        for _ in range(line):
            stream.readline()
        while block := stream.read(1 << 20):
            rest.write(block)
