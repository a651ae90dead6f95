"""Add rows to a saved model, for a fraction of the time that training on all rows would take.

DATA is any source that train reads. The network is trained on the new rows in one pass; the k-NN index, co-occurrence
and linear classifiers learn them, too; stacking does not change. A row that the model has learned before counts twice.
New labels and words are added. With --label-texts, texts of new labels are learned as well, even of labels that no row
has. With --vocabulary, labels get the names that the file has for their URIs. With --test, the model is evaluated
before and after.

The model in DIR is replaced at the end, in one step; with --out it does not change. It must be neither compact nor an
ensemble.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...errors import counted
from .. import model_folder
from ..flags import DIR, FORMAT_FLAGS, JSON_FILE, LABEL_TEXTS, OVERWRITE, PATH, Flag, positional
from ..input_options import InputOptions
from ..messages import Console
from ..models import check_model, options_of_model, read_learner, rename_labels
from ..output_files import check_folder
from ..parameters import parameter_flags
from ..results import COLUMNS, table, write_json

FLAGS = (
    positional("model", DIR, "DIR", "folder of the model"),
    positional("data", PATH, "DATA", "rows to add, in any format that train reads"),
    Flag("test", PATH, "rows to measure on, before and after", "data"),
    *FORMAT_FLAGS,
    LABEL_TEXTS,
    *parameter_flags("learning_rate_init", "n_jobs"),
    Flag("out", DIR, "folder of the new model", "output", default_text="DIR", synonyms=("-o", "--output")),
    OVERWRITE,
    JSON_FILE,
)
EXAMPLES = """  xmlsgd learn model new.txt
  xmlsgd learn model new.txt --test test.txt --out model-2"""


def run(
    model: str,
    data: str,
    test: str | None,
    input_options: InputOptions,
    parameters: dict[str, Any],
    out: str | None,
    overwrite: bool,
    console: Console,
) -> None:
    """Load, read, learn, measure, save."""
    input_options.check_inputs(data, test)
    check_model(model, data, "learn")
    folder, flag = (model, "DIR") if out is None else (out, "--out")
    check_folder(folder, data, test, *input_options.files, flag=flag, overwrite=overwrite or out is None)
    from ..input_warnings import check_training_rows
    from ..sources import Columns, InputRows, read_more, read_test, with_learned_columns
    from ..training_runs import about_run, learn, measure

    target = model_folder.Target(folder, Path(data).name, replaces=model_folder.manifest_of(folder))
    estimator, n_renamed = read_learner(model, parameters), 0
    input_options = options_of_model(input_options, model, estimator)
    if input_options.vocabulary is not None:
        names, n_renamed = rename_labels(estimator, input_options.names or {}, input_options.vocabulary)
        input_options = input_options.with_names(names)
    columns = Columns.of_model(estimator)
    train, documents, new_label_texts = read_more(data, input_options, columns)
    # Before learning, so that an error in the file cannot lose what was learned.
    test_rows, texts = (None, None) if test is None else read_test(test, input_options, columns)
    saved_options = model_folder.saved_options(model)
    if saved_options is None:  # empty options stay: the training data was read without flags
        saved_options = input_options.to_save
    names_of_uris = input_options.names_of_uris
    rows = InputRows(train, test_rows, columns.vectorizer, names_of_uris=names_of_uris, saved_options=saved_options)
    check_training_rows(rows, data, test, input_options, columns.n_labels)
    n_records, results = len(estimator.history_), {}
    if test_rows is not None:
        results["before"] = measure(estimator, test_rows, console, with_thresholds=False)
    seconds = learn(estimator, train, columns, documents, new_label_texts)
    if test is not None and test_rows is not None:
        test_rows = with_learned_columns(test_rows, texts, Columns.of_model(estimator), test)
        results["after"] = measure(estimator, test_rows, console, with_thresholds=False)
        console.show(table(results, COLUMNS))
    result = results.get("after", {}) | about_run(estimator, rows, estimator.history_[n_records:])
    result |= {"before": results.get("before"), "seconds": seconds}
    if documents:
        del result["data"]["train"]["nnz"]  # rows of texts are empty here
    model_folder.save(estimator, target, result, rows.names_of_uris)
    new = [counted(len(estimator.classes_) - columns.n_labels, "new label")]
    if n_renamed:
        new.append(counted(n_renamed, "renamed label"))
    if documents:
        kind = "new word" if estimator.vectorizer_.analyzer == "word" else "new n-gram"
        new.append(counted(estimator.n_features_in_ - train.n_features, kind))
    added = f"{counted(train.n_rows, 'row')}, {train.Y.nnz / train.n_rows:.1f} labels a row"
    console.show(f"added {added}, in {seconds:.1f} s; {', '.join(new)}")
    console.show(f"model: {folder}")
    write_json(console.json, result)
