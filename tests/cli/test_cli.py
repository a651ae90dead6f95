"""The commands demo and info, the flags and their spellings, and the help."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from shared.command_line import QUICK, ROWS, TEST_TEXT, TEXT, run
from shared.paths import ROOT
from xmlsgd.cli import COMMANDS, new_parser
from xmlsgd.cli.flags import collect, flag_of
from xmlsgd.cli.model_metrics import examples
from xmlsgd.cli.parameters import PARAMETERS
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.text import Documents, read_raw_text
from xmlsgd.estimators import XMLClassifier


def test_demo_trains_on_real_functions_and_shows_them(capsys, tmp_path, monkeypatch):
    from xmlsgd.data import python_functions

    texts = (read_raw_text(TEXT, labelled=True), read_raw_text(TEST_TEXT, labelled=True))
    monkeypatch.setattr(python_functions, "python_functions_texts", lambda: texts)
    run("demo", "--out", tmp_path / "demo", *QUICK)
    out = capsys.readouterr().out
    network, frequent = (next(line for line in out.splitlines() if line.startswith(name)) for name in ("this", "most"))
    assert float(network.split()[2]) > float(frequent.split()[3])
    assert out.splitlines()[-1] == f"learning curve: {tmp_path / 'demo'}/learning_curve.png"


def test_demo_marks_the_labels_that_are_true():
    texts = ["read the next lines of a file", "short", "close the door " * 7]
    documents = Documents(texts, [("open", "close"), ("open",), ("close",)])
    X = CSR(np.arange(4), np.zeros(3, np.int32), np.ones(3, np.float32), 1)
    model = SimpleNamespace(classes_=["open", "read"], predict_topk=lambda X, k: (np.array([[1, 0, -1]] * 2), None))
    assert examples(model, Dataset(X, X), documents) == [
        texts[0],
        "    read  open*",
        "close the door " * 4 + "close the ...",
        "    read  open",
    ]


def test_info_names_versions_and_processor(capsys):
    run("info", "--json", "-")
    facts = json.loads(capsys.readouterr().out)
    assert facts.keys() >= {"xmlsgd", "python", "numba", "processor", "threads", "bfloat16"}


def test_version_and_help_end_with_zero(capsys):
    run("--version")
    assert capsys.readouterr().out.startswith("xmlsgd ")
    for command in COMMANDS:
        run(command, "--help")
        assert "--quiet" in capsys.readouterr().out


def loaded_by(*calls):
    """Return the modules that command lines leave loaded in a fresh interpreter, and their exit codes."""
    code = (
        "import json, sys; from xmlsgd.cli import main\n"
        f"codes = [main(words) for words in {list(calls)}]\n"
        "print(json.dumps([list(sys.modules), codes]), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    modules, codes = json.loads(result.stderr.splitlines()[-1])
    return set(modules), codes


def test_openblas_starts_no_more_threads_than_are_asked_for(monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    code = (
        "from xmlsgd.cli import main; main(['predict', 'nowhere', 'nothing', '--threads', '1'])\n"
        "import scipy.linalg, threadpoolctl; print(threadpoolctl.threadpool_info())"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    libraries = ast.literal_eval(result.stdout.splitlines()[-1])
    assert {each["num_threads"] for each in libraries if each["internal_api"] == "openblas"} <= {1}


REFUSED = [
    ["train", "nowhere", "--out", "m"],
    ["train", ROWS, "--test", "nowhere", "--out", "m"],
    ["evaluate", "nowhere", ROWS],
    ["predict", "nowhere", ROWS],
    ["convert", "nowhere.txt", "m"],
    ["simulate", "nowhere"],
]


def test_help_and_a_wrong_path_load_nothing_heavy():
    modules, returned = loaded_by(["train", "--help"])
    assert {"numpy", "scipy", "numba", "sklearn", "tqdm", "matplotlib"}.isdisjoint(modules)
    assert returned == [0]
    modules, returned = loaded_by(*REFUSED)
    assert {"scipy", "numba", "sklearn", "tqdm", "matplotlib"}.isdisjoint(modules)
    assert returned == [2] * len(REFUSED)


def test_every_parameter_of_the_estimator_that_text_can_express_is_a_flag():
    known = set(inspect.signature(XMLClassifier).parameters)
    assert sorted(p.name for p in PARAMETERS) == sorted(known - {"vectorizer", "verbose", "warm_start"})


def test_the_help_tells_the_defaults_of_the_estimator():
    known = inspect.signature(XMLClassifier).parameters
    for parameter in PARAMETERS:
        default = known[parameter.name].default
        if parameter.default:
            assert parameter.value_type.read(parameter.default) == default, parameter.name
        else:
            assert default is None or default is False, parameter.name


def parameters_of(*words):
    """Return the parameters of the estimator that a command line sets."""
    values = vars(new_parser().parse_args(words))
    return collect(values["command"].FLAGS, values)["parameters"]


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda p: p.name)
def test_every_spelling_of_a_flag_sets_the_parameter(parameter):
    value = {"hidden_layer_sizes": "7,5", "class_weight": "balanced"}.get(parameter.name, "1")
    read = True if parameter.value_type is None else parameter.value_type.read(value)
    for flag in (flag_of(parameter.name), f"--{parameter.name}", *parameter.synonyms):
        words = [flag] if parameter.value_type is None else [f"{flag}={value}"]
        assert parameters_of("train", "x", "--out", "y", *words) == {parameter.name: read}, flag


def test_flags_not_given_leave_the_estimators_defaults():
    assert parameters_of("train", "x", "--out", "y") == {}


def test_words_after_two_dashes_are_not_flags():
    assert vars(new_parser().parse_args(["predict", "--", "--epochs", "x"]))["model"] == "--epochs"
