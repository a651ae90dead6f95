"""Algorithms with options in a line of text: what is read, what is refused, that files and commands have it."""

from __future__ import annotations

import re
from dataclasses import fields
from math import inf

import pytest

from shared.paths import ROOT
from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.algorithms import algorithm_class, algorithm_names, check_algorithm, get_algorithm
from xmlsgd.algorithms.adaptive import AdaptiveSGD
from xmlsgd.algorithms.easgd import EASGD
from xmlsgd.algorithms.hogbatch import Hogbatch
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.omnivore import Omnivore
from xmlsgd.algorithms.options import SET_BY_PARAMETERS, write_field
from xmlsgd.algorithms.outer import OUTERS, HeavyBall, Nesterov, Outer
from xmlsgd.errors import DataError, ModelFileError


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("hogwild/copies=true", Hogwild(8, 0.1, copies=True)),
        ("easgd/asynchronous=false", EASGD(8, 0.1)),
        ("omnivore/groups=none", Omnivore(8, 0.1)),
        ("local_sgd/outer=nesterov", LocalSGD(8, 0.1, outer=Nesterov())),
        ("hogbatch/sizes=256:1024/threads=4:1", Hogbatch(8, 0.1, sizes=(256, 1024), threads=(4, 1))),
        ("local_sgd/steps=8/outer=nesterov:0.8/combine=mean", LocalSGD(8, 0.1, 8, outer=Nesterov(0.8), combine="mean")),
        (
            "local_sgd/outer=heavy_ball:.9:.02/dynamic=false",
            LocalSGD(8, 0.1, dynamic=False, outer=HeavyBall(0.9, 0.02)),
        ),
        ("omnivore/ tune = True", Omnivore(8, 0.1, tune=True)),
        ("adaptive/straggler_timeout=inf/low=2", AdaptiveSGD(8, 0.1, straggler_timeout=inf, low=2)),
        ("omnivore/tune=true/slice_seconds=.5", Omnivore(8, 0.1, tune=True, slice_seconds=0.5)),
    ],
)
def test_options_set_the_fields_of_an_algorithm(text, made):
    assert get_algorithm(text, batch=8, learning_rate=0.1) == made


def test_every_outer_optimizer_is_written_and_read_as_text():
    outers = [Outer(), HeavyBall(0.5, 2.0), Nesterov(0.8)]
    assert {type(outer) for outer in outers} == set(OUTERS.values())
    for outer in outers:
        assert get_algorithm(f"local_sgd/outer={write_field(outer)}", 8, 0.1) == LocalSGD(8, 0.1, outer=outer)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("hogwild/copy=true", r"algorithm: hogwild has the options copies=\.\.\., each once, got 'copy=true'"),
        ("adaptive/stragler_timeout=3", r"got 'stragler_timeout=3'; did you mean 'straggler_timeout'\?$"),
        ("local_sgd/outer=nestrov", r"outer: must be one of .*, got 'nestrov'; did you mean 'nesterov'\?$"),
        ("hogwild/", "each once, got ''"),
        ("hogwild/copies", "got 'copies'"),
        ("hogwild/copies=true/copies=true", "each once"),
        ("hogwild/batch=3", "got 'batch=3'; pass batch_size instead$"),
        ("adaptive/learning_rate=3", "got 'learning_rate=3'; pass learning_rate_init instead$"),
        ("sequential/x=1", "algorithm: sequential has no options, got 'x=1'$"),
        ("auto/worth=0.1", "auto has no options"),
        ("local_sgd/steps=8,outer=mean", "a whole number, got '8,outer=mean'; options are separated by /$"),
        ("crossbow/center_momentum=1", "center_momentum must be in"),
        ("adaptive/low=0", "low must be at least 1 or None, got 0$"),
        ("local_sgd/outer=heavy_ball:1:2:3", "outer: heavy_ball has 2 numbers, got 'heavy_ball:1:2:3'"),
        ("local_sgd/outer=mean:1", "outer: mean has 0 numbers"),
        ("local_sgd/outer=nesterov:x", "outer: must be a number, got 'x'"),
        ("local_sgd/outer=nesterov:1", "momentum must be in"),
        ("local_sgd/steps=1.5", r"steps: must be a whole number, got '1\.5'"),
        ("local_sgd/straggler_timeout=nan", "straggler_timeout must be a number, got nan"),
        ("local_sgd/dynamic=1", "dynamic: must be true or false, got '1'"),
        ("local_sgd/combine=sum", "combine must be one of mean"),
        ("magic/x=1", "algorithm must be one of .*, got 'magic'"),
    ],
)
def test_options_that_cannot_be_are_one_line(text, complaint):
    for given in (lambda: check_algorithm(text), lambda: XMLClassifier(algorithm=text).fit([[1.0]], [[1]])):
        with pytest.raises(DataError, match=complaint) as error:
            given()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("given", [None, 3, b"auto", ["local_sgd"], LocalSGD])
def test_what_is_neither_a_name_nor_an_algorithm_is_told_so(given):
    with pytest.raises(DataError, match="algorithm: must be a name or an Algorithm such as"):
        get_algorithm(given, 8, 0.1)


@pytest.mark.parametrize(
    "algorithm",
    [
        "local_sgd/outer=nesterov/combine=mean", LocalSGD(16, 0.006, outer=HeavyBall(0.5), straggler_timeout=inf),
        Hogbatch(16, 0.006, copies=True, sizes=(32,), threads=(2,)),
    ],
    ids=["text", "outer", "sizes"],
)  # fmt: skip
def test_a_model_keeps_the_rules_of_its_algorithm_in_its_files(tmp_path, algorithm):
    data = make_xmc(60, 20, 10, nnz_per_row=4, labels_per_row=2, random_state=0)
    model = XMLClassifier((4,), algorithm=algorithm, max_epochs=1, random_state=0, n_jobs=1).fit(data.X, data.Y)
    model.save(tmp_path / "m")
    loaded = XMLClassifier.load(tmp_path / "m").algorithm
    assert str(loaded) == str(algorithm)
    assert type(loaded) is type(algorithm)


def test_a_rule_that_is_not_of_this_package_is_not_saved(tmp_path):
    class Own(Outer):
        pass

    data = make_xmc(60, 20, 10, nnz_per_row=4, labels_per_row=2, random_state=0)
    model = XMLClassifier((4,), algorithm=LocalSGD(16, 0.1, outer=Own()), max_epochs=1, n_jobs=1).fit(data.X, data.Y)
    with pytest.raises(ModelFileError, match="algorithm: its fields must be numbers, texts or rules of this package"):
        model.save(tmp_path / "m")


def test_every_option_and_every_rule_is_documented():
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([`\w, ]+) \| (.*)$", page, re.MULTILINE))
    documented = {name: text for names, text in rows.items() for name in re.findall(r"\w+", names)}
    for name in set(algorithm_names()) - {"auto"}:
        assert name in documented, f"{name} lacks a row in the table of docs/algorithms.md"
        kind, text = algorithm_class(name), documented[name]
        assert f"`{kind.__name__}`" in text
        while "those of" in text and (base := re.search(r"those of `(\w+)`", text)):
            text = text.replace(base[0], documented[base[1]])
        assert {field.name for field in fields(kind)} - set(SET_BY_PARAMETERS) == set(re.findall(r"`(\w+)=", text)), (
            name
        )
    for name, rule in OUTERS.items():
        (text,) = re.findall(rf"^\| `({name}[:\d.]*)` \| `{rule.__name__}\(", page, re.MULTILINE)
        made = get_algorithm(f"local_sgd/outer={text}", 8, 0.1)
        assert made == LocalSGD(8, 0.1, outer=rule()), "documented with its defaults"
