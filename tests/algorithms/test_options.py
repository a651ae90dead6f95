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
from xmlsgd.algorithms.hogbatch import Hogbatch
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.omnivore import Omnivore
from xmlsgd.algorithms.options import GIVEN, write_field
from xmlsgd.algorithms.outer import OUTERS, HeavyBall, Nesterov, Outer
from xmlsgd.algorithms.staleness import RULES, Bounded, Dropped, Staleness
from xmlsgd.errors import DataError, ModelFileError


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("hogwild/staleness=dropped:16", Hogwild(8, 0.1, staleness=Dropped(16))),
        ("hogwild/staleness=none", Hogwild(8, 0.1)),
        ("hogwild/staleness=dropped", Hogwild(8, 0.1, staleness=Dropped())),
        ("hogbatch/sizes=256:1024/threads=4:1/cap=0.5", Hogbatch(8, 0.1, sizes=(256, 1024), threads=(4, 1), cap=0.5)),
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


def test_every_rule_is_written_and_read_as_text():
    rules = [Dropped(3), Bounded(0)]
    outers = [Outer(), HeavyBall(0.5, 2.0), Nesterov(0.8)]
    assert {type(rule) for rule in (Staleness(), *rules)} == set(RULES.values())
    assert {type(outer) for outer in outers} == set(OUTERS.values())
    for rule in rules:
        assert get_algorithm(f"hogwild/staleness={write_field(rule)}", 8, 0.1) == Hogwild(8, 0.1, rule)
    for outer in outers:
        assert get_algorithm(f"local_sgd/outer={write_field(outer)}", 8, 0.1) == LocalSGD(8, 0.1, outer=outer)
    full = get_algorithm(f"hogwild/staleness={write_field(Staleness())}", 8, 0.1)
    assert isinstance(full, Hogwild)
    assert type(full.staleness) is Staleness


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("hogwild/stale=full", r"algorithm: hogwild has the options staleness=\.\.\., each once, got 'stale=full'"),
        ("adaptive/stragler_timeout=3", r"got 'stragler_timeout=3'; did you mean 'straggler_timeout'\?$"),
        ("local_sgd/outer=nestrov", r"outer: must be one of .*, got 'nestrov'; did you mean 'nesterov'\?$"),
        ("hogwild/", "each once, got ''"),
        ("hogwild/staleness", "got 'staleness'"),
        ("hogwild/staleness=full/staleness=full", "each once"),
        ("hogwild/batch=3", "got 'batch=3'; pass batch_size instead$"),
        ("adaptive/learning_rate=3", "got 'learning_rate=3'; pass learning_rate_init instead$"),
        ("sequential/x=1", "algorithm: sequential has no options, got 'x=1'$"),
        ("auto/worth=0.1", "auto has no options"),
        ("local_sgd/steps=8,outer=mean", "a whole number, got '8,outer=mean'; options are separated by /$"),
        ("easgd/center_momentum=1", "center_momentum must be in"),
        ("adaptive/low=0", "low must be at least 1 or None, got 0$"),
        ("hogwild/staleness=old", "staleness: must be one of full, dropped, bounded, got 'old'"),
        ("hogwild/staleness=dropped:1:2", "staleness: dropped has 1 number, got 'dropped:1:2'"),
        ("hogwild/staleness=full:1", "staleness: full has 0 numbers"),
        ("hogwild/staleness=dropped:x", "staleness: must be a whole number, got 'x'"),
        ("hogwild/staleness=dropped:0", "limit must be at least 1, got 0"),
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
        Hogbatch(16, 0.006, staleness=Dropped(3), sizes=(16, 32)), Hogwild(16, 0.006, staleness=Staleness()),
    ],
    ids=["text", "outer", "dropped", "full"],
)  # fmt: skip
def test_a_model_keeps_the_rules_of_its_algorithm_in_its_files(tmp_path, algorithm):
    data = make_xmc(60, 20, 10, nnz_per_row=4, labels_per_row=2, random_state=0)
    model = XMLClassifier((4,), algorithm=algorithm, max_epochs=1, random_state=0, n_jobs=1).fit(data.X, data.Y)
    model.save(tmp_path / "m")
    loaded = XMLClassifier.load(tmp_path / "m").algorithm
    assert str(loaded) == str(algorithm) or write_field(loaded.staleness) == write_field(algorithm.staleness)
    assert type(loaded) is type(algorithm)


def test_a_rule_that_is_not_of_this_package_is_not_saved(tmp_path):
    class Own(Staleness):
        pass

    data = make_xmc(60, 20, 10, nnz_per_row=4, labels_per_row=2, random_state=0)
    model = XMLClassifier((4,), algorithm=Hogwild(16, 0.1, Own()), max_epochs=1, n_jobs=1).fit(data.X, data.Y)
    with pytest.raises(ModelFileError, match="algorithm: its fields must be numbers, texts or rules of this package"):
        model.save(tmp_path / "m")


def test_every_option_and_every_rule_is_documented():
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([`\w, ]+) \| (.*)$", page, re.MULTILINE))
    documented = {name: text for names, text in rows.items() for name in re.findall(r"\w+", names)}
    for name in set(algorithm_names()) - {"auto"}:
        assert name in documented, f"{name} lacks a row in the table of docs/algorithms.md"
        kind, text = algorithm_class(name), documented[name]
        while "those of" in text and (base := re.search(r"those of `(\w+)`", text)):
            text = text.replace(base[0], documented[base[1]])
        assert {field.name for field in fields(kind)} - set(GIVEN) == set(re.findall(r"`(\w+)=", text)), name
    for name, rule in (RULES | OUTERS).items():
        (text,) = re.findall(rf"^\| `({name}[:\d.]*)` \| `{rule.__name__}\(", page, re.MULTILINE)
        field = "staleness" if name in RULES else "outer"
        made = getattr(get_algorithm(f"{'hogwild' if name in RULES else 'local_sgd'}/{field}={text}", 8, 0.1), field)
        assert write_field(made) == write_field(rule()), "documented with its defaults"
