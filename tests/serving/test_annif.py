"""The backend of Annif: with Annif where it is installed, else with the few names of it that the backend uses."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from shared.fake_annif import HAS_ANNIF, Corpus, Refused, modules, project

LABELS = ["reading", "writing", "files", "sockets", "zoology"]  # no document is about the last one
TEXTS = ["read a file", "write a file", "read some json", "write some json", "open the socket", "close the socket"] * 4
SUBJECTS = [[0, 2], [1, 2], [0], [1], [3], [3]] * 4
CONFIG = {
    "hidden_layer_sizes": "(8,)",
    "max_epochs": "30",
    "random_state": "0",
    "batch_size": "4",
    "allow_learn": "true",
}


@pytest.fixture(scope="module")
def annif_backend():
    """Return the module of the backend; its own import registers it."""
    with pytest.MonkeyPatch.context() as patch:
        if not HAS_ANNIF:
            for name, module in modules().items():
                patch.setitem(sys.modules, name, module)
        yield importlib.import_module("xmlsgd.serving.annif")
        sys.modules.pop("xmlsgd.serving.annif")


def opened(annif_backend, folder, labels=LABELS, **config):
    return annif_backend.XMLBackend("xmlsgd", CONFIG | config, project(folder, labels))


@pytest.fixture(scope="module")
def trained(annif_backend, tmp_path_factory):
    """Return the folder of a trained project."""
    folder = tmp_path_factory.mktemp("project")
    opened(annif_backend, folder).train(Corpus(TEXTS, SUBJECTS), jobs=1)
    return folder


@pytest.fixture
def backend(annif_backend, trained):
    return opened(annif_backend, trained)


def suggestions(backend, *texts, **params):
    """Return the scores of all subjects for each text, 0 where there is none."""
    return backend.suggest([SimpleNamespace(text=text) for text in texts], params).array.toarray()


def test_importing_the_module_registers_the_backend(annif_backend):
    assert sys.modules["annif.backend"]._backend_fns["xmlsgd"]() is annif_backend.XMLBackend


def test_the_subjects_of_a_text_come_first_with_scores_up_to_one(backend):
    found = suggestions(backend, "read the file", "close that socket")
    assert found.shape == (2, len(LABELS))
    assert set(np.argsort(-found[0])[:2]) == {0, 2}
    assert found[1].argmax() == 3
    assert (found > 0).all()
    assert (found <= 1).all()


def test_no_more_subjects_than_the_limit_are_suggested(backend):
    assert (suggestions(backend, "read the file", limit="2") > 0).sum() == 2


def test_a_text_without_known_words_has_no_suggestions(backend):
    found = suggestions(backend, "", "read", "xyzzy")
    assert (found > 0).any(axis=1).tolist() == [False, True, False]


def test_a_deprecated_subject_gives_way_to_the_next(annif_backend, trained):
    labels = [None if label == "sockets" else label for label in LABELS]
    found = suggestions(opened(annif_backend, trained, labels), "close the socket", limit="2")
    assert found[0, 3] == 0
    assert (found > 0).sum() == 2


def test_the_label_of_a_subject_without_documents_is_learned(backend):
    of_label, of_another = suggestions(backend, "zoology", "read the file")[:, LABELS.index("zoology")]
    assert of_label > 2 * of_another


def test_without_label_texts_words_of_labels_are_unknown(annif_backend, tmp_path):
    backend = opened(annif_backend, tmp_path, label_texts="false", max_epochs="1")
    backend.train(Corpus(TEXTS, SUBJECTS), jobs=1)
    assert "zoology" not in backend._loaded[0].vectorizer_.words
    assert not suggestions(backend, "zoology").any()


def test_documents_without_subjects_are_not_learned(annif_backend, tmp_path):
    backend = opened(annif_backend, tmp_path, max_epochs="1")
    backend.train(Corpus([*TEXTS, "read json", ""], [*SUBJECTS, [], [1]]), jobs=1)
    assert backend._loaded[0].n_samples_seen_ == len(TEXTS)


def test_training_on_cached_rows_repeats_the_model(annif_backend, trained, tmp_path):
    first = opened(annif_backend, tmp_path / "project", max_epochs="2")
    first.train(Corpus(TEXTS, SUBJECTS), jobs=1)
    before = suggestions(first, *TEXTS)
    grown = opened(annif_backend, tmp_path / "project", [*LABELS, "botany"], max_epochs="2", label_texts="no")
    grown.train("cached", jobs=1)
    assert suggestions(grown, *TEXTS).shape == (len(TEXTS), 6)
    again = opened(annif_backend, tmp_path / "project", max_epochs="2")
    again.train("cached", jobs=1)
    np.testing.assert_array_equal(suggestions(again, *TEXTS), before)


def test_learning_adds_subjects_of_a_vocabulary_that_has_grown(annif_backend, tmp_path):
    opened(annif_backend, tmp_path).train(Corpus(TEXTS, SUBJECTS), jobs=1)
    grown = opened(annif_backend, tmp_path, [*LABELS, "closing"])
    for _ in range(10):
        grown.learn(Corpus(["close close", "close"] * 8, [[5]] * 16))
    assert suggestions(grown, "close")[0].argmax() == 5
    assert suggestions(opened(annif_backend, tmp_path, [*LABELS, "closing"]), "close")[0].argmax() == 5


def test_words_that_no_training_document_has_are_learned_later(annif_backend, trained, tmp_path):
    backend = opened(annif_backend, tmp_path)
    backend.train(Corpus(TEXTS, SUBJECTS), jobs=1)
    for _ in range(10):
        backend.learn(Corpus(["parse yaml", "parse toml"] * 8, [[4]] * 16))
    assert suggestions(backend, "yaml")[0].argmax() == 4


def test_features_are_what_the_analyzer_finds(annif_backend, tmp_path):
    backend = opened(annif_backend, tmp_path, max_epochs="1", label_texts="no")
    backend.project.analyzer.tokenize_words = lambda text: [word[:3] for word in text.split() if len(word) > 2]
    backend.train(Corpus(TEXTS, SUBJECTS), jobs=1)
    assert backend._loaded[0].vectorizer_.words == ["clo", "fil", "jso", "ope", "rea", "soc", "som", "the", "wri"]
    assert suggestions(backend, "readable").any()


def compounds(n):
    """Return texts of one word, whose beginning names the subject and whose end no other text has."""
    return Corpus(
        [f"{LABELS[i % 4]}{i:07b}".translate({48: "o", 49: "l"}) for i in range(n)], [[i % 4] for i in range(n)]
    )


def test_n_grams_of_characters_are_features_where_neighbors_find_more_by_them(annif_backend, tmp_path):
    backend = opened(annif_backend, tmp_path, max_epochs="1")
    backend.train(compounds(300), jobs=1)
    assert backend._loaded[0].vectorizer_.analyzer == "char_wb"
    assert suggestions(backend, "socketsxyz")[0].argmax() == 3


@pytest.mark.parametrize("setting", ["ngram", "min_df"])
def test_a_project_that_sets_options_of_words_gets_words(annif_backend, tmp_path, setting):
    backend = opened(annif_backend, tmp_path, max_epochs="1", **{setting: "1"})
    backend.train(compounds(300), jobs=1)
    assert backend._loaded[0].vectorizer_.analyzer == "word"


def test_what_a_project_asks_of_cached_rows_is_reported_if_they_are_otherwise(annif_backend, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(annif_backend.XMLBackend, "warning", lambda _, message: told.append(message))
    opened(annif_backend, tmp_path, max_epochs="1", ngram="2").train(Corpus(TEXTS, SUBJECTS), jobs=1)
    opened(annif_backend, tmp_path, max_epochs="1", ngram="2").train("cached", jobs=1)
    assert told == []
    opened(annif_backend, tmp_path, max_epochs="1", ngram="1").train("cached", jobs=1)
    assert told == ["ngram, min_df: change nothing on cached rows, which have the features of their training"]


@pytest.mark.parametrize(
    ("setting", "value", "wanted"),
    [
        ("hidden_layer_sizes", "abc", "hidden_layer_sizes: must be"),
        ("ngram", "abc", "ngram: must be an integer from 1 to 16, got 'abc'"),
        ("min_df", "0", "min_df: must be a positive integer"),
        ("limit", "no", "limit: must be a positive integer, got 'no'"),
    ],
)
def test_a_wrong_setting_is_refused_before_documents_are_read(annif_backend, tmp_path, setting, value, wanted):
    corpus = SimpleNamespace()  # has no documents to read
    assert wanted in refusal(lambda: opened(annif_backend, tmp_path, **{setting: value}).train(corpus))


def test_a_damaged_file_of_rows_says_how_to_make_another(annif_backend, tmp_path):
    opened(annif_backend, tmp_path, max_epochs="1").train(Corpus(TEXTS, SUBJECTS), jobs=1)
    file = tmp_path / annif_backend.XMLBackend.TRAIN_FILE
    for damaged in (file.read_bytes()[:300], b""):
        file.write_bytes(damaged)
        assert "train the project on documents" in refusal(lambda: opened(annif_backend, tmp_path).train("cached"))


def test_a_vocabulary_that_has_lost_subjects_wants_a_new_training(annif_backend, tmp_path):
    opened(annif_backend, tmp_path, max_epochs="1").train(Corpus(TEXTS, SUBJECTS), jobs=1)
    fewer = opened(annif_backend, tmp_path, LABELS[:4])
    assert "4 subjects, fewer than the 5 of the model" in refusal(lambda: fewer.learn(Corpus(TEXTS, SUBJECTS)))


def refusal(act):
    with pytest.raises(Refused) as caught:
        act()
    return caught.value.message


def test_a_project_trained_without_allow_learn_is_compact_and_says_so_when_asked_to_learn(annif_backend, tmp_path):
    backend = opened(annif_backend, tmp_path, allow_learn="no", max_epochs="1")
    corpus = Corpus(TEXTS, SUBJECTS)
    backend.train(corpus, jobs=1)
    assert suggestions(backend, "read").any()
    assert "trained without allow_learn=true" in refusal(lambda: backend.learn(corpus))


def test_what_cannot_be_done_is_an_error_of_annif(annif_backend, backend, tmp_path):
    corpus = Corpus(TEXTS, SUBJECTS)
    for empty in (Corpus([], []), Corpus(["read a file", ""], [[], [0]])):
        assert "at least one document with words and subjects" in refusal(lambda empty=empty: backend.learn(empty))
    assert "batch_size" in refusal(lambda: opened(annif_backend, tmp_path, batch_size="no").train(corpus))
    assert "train the project" in refusal(lambda: opened(annif_backend, tmp_path).initialize())


def test_misspelled_settings_are_reported(annif_backend, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(annif_backend.XMLBackend, "warning", lambda _, message: told.append(message))
    given = {
        "name": "words",
        "language": "en",
        "backend": "xmlsgd",
        "vocab": "labels",
        "transform": "pass",
        "limit": "5",
    }
    backend = opened(annif_backend, tmp_path, **given, max_epoch="1", n_jobs="2", ngrams="2", max_epochs="1")
    backend.train(Corpus(TEXTS, SUBJECTS), jobs=1)
    assert told == [
        "max_epoch: is no setting of Annif or xmlsgd, and changes nothing; did you mean 'max_epochs'?",
        "n_jobs: is no setting of Annif or xmlsgd, and changes nothing",
        "ngrams: is no setting of Annif or xmlsgd, and changes nothing; did you mean 'ngram'?",
    ]


@pytest.mark.parametrize("name", ["label_texts", "allow_learn"])
def test_a_setting_that_is_neither_true_nor_false_is_refused(annif_backend, tmp_path, name):
    backend = opened(annif_backend, tmp_path, **{name: "maybe"})
    message = refusal(lambda: backend.train(Corpus(TEXTS, SUBJECTS), jobs=1))
    assert message == f"{name}: must be true or false, got 'maybe'"


def test_a_search_refuses_a_metric_that_annif_lacks(annif_backend, tmp_path):
    backend = opened(annif_backend, tmp_path)  # not trained: the metric is looked at first
    message = refusal(lambda: recommended(backend, Corpus(TEXTS, SUBJECTS), 1, "NDGC@5"))
    assert message == "metric: must be one that `eval` prints, got 'NDGC@5'; did you mean 'NDCG@5'?"


def recommended(backend, corpus, n_trials, metric="Precision@1"):
    """Return the score of the best trial, and its lines as settings of a project."""
    found = backend.get_hp_optimizer(corpus, metric).optimize(n_trials, 1, None)
    return found.score, dict(line.split("=") for line in found.lines)


def test_a_search_begins_with_the_parameters_of_the_project(annif_backend, tmp_path):
    settings = {"max_epochs": "auto", "learning_rate_init": "auto", "candidates": "0"}
    backend = opened(annif_backend, tmp_path, **settings)
    backend.train(Corpus(TEXTS, SUBJECTS), jobs=1)
    before = suggestions(backend, *TEXTS)
    of_first, lines = recommended(backend, Corpus(TEXTS, SUBJECTS), 1)
    assert set(lines) == {"hidden_dropout", "max_epochs", "learning_rate_init"}  # others are set in the project
    model = annif_backend.XMLClassifier(**annif_backend._classifier_parameters(CONFIG | settings))
    vectorizer, rows = backend._read_rows()
    plan = model.plan(*rows, label_texts=backend._label_rows(vectorizer, backend.params))
    assert int(lines["max_epochs"]) == plan.schedule.epochs
    assert float(lines["learning_rate_init"]) == pytest.approx(plan.learning_rate, rel=0.05)
    assert of_first == np.mean([row.argmax() in right for row, right in zip(before, SUBJECTS, strict=True)])


def test_a_search_recommends_settings_that_score_as_it_says(annif_backend, tmp_path):
    settings = {"max_epochs": "1", "learning_rate_init": "auto"}
    backend = opened(annif_backend, tmp_path, **settings)
    corpus = Corpus(TEXTS, SUBJECTS)
    backend.train(corpus, jobs=1)
    score, lines = recommended(backend, corpus, 6)
    better = opened(annif_backend, tmp_path, **(settings | lines))
    better.train("cached", jobs=1)
    found = suggestions(better, *TEXTS)
    assert score == np.mean([row.argmax() in right for row, right in zip(found, SUBJECTS, strict=True)])


def test_a_search_needs_a_trained_project_and_a_trial_that_ends(annif_backend, trained, tmp_path):
    corpus = Corpus(TEXTS, SUBJECTS)
    assert refusal(lambda: opened(annif_backend, tmp_path).get_hp_optimizer(corpus, "Precision@1").optimize(1, 1, None))
    diverging = opened(annif_backend, trained, learning_rate_init="1e30")
    assert "no trial has ended" in refusal(lambda: recommended(diverging, corpus, 2))


def test_one_of_several_processes_uses_one_thread(annif_backend, trained):
    backend = opened(annif_backend, trained)
    backend.initialize()
    assert backend._loaded[0].n_jobs is None
    backend.initialize(parallel=True)
    assert backend._loaded[0].n_jobs == 1


def test_texts_of_a_configuration_are_read_as_the_values_that_they_mean(annif_backend):
    given = {"name": "a project", "max_epochs": "3", "optimizer": "adagrad", "hidden_layer_sizes": "512,256"}
    expected = {"max_epochs": 3, "optimizer": "adagrad", "hidden_layer_sizes": (512, 256)}
    assert annif_backend._classifier_parameters(given) == expected


@pytest.mark.skipif(not HAS_ANNIF, reason="Annif is not installed")
def test_the_command_line_of_annif_trains_suggests_searches_and_learns(tmp_path):
    uris = [f"http://example.org/{label}" for label in LABELS]
    rows = [f"{uri},{label}" for uri, label in zip(uris, LABELS, strict=True)]
    (tmp_path / "labels.csv").write_text("\n".join(["uri,label_en", *rows, ""]))
    lines = [f"{text}\t{' '.join(f'<{uris[i]}>' for i in ids)}\n" for text, ids in zip(TEXTS, SUBJECTS, strict=True)]
    (tmp_path / "texts.tsv").write_text("".join(lines))
    config = {"language": "en", "backend": "xmlsgd", "vocab": "labels", "analyzer": "simple", **CONFIG}
    (tmp_path / "projects.cfg").write_text("\n".join(["[words]", *(f"{key}={value}" for key, value in config.items())]))

    def answer(*arguments, text=""):
        script = "from xmlsgd.serving import annif_command; annif_command()"
        command = [sys.executable, "-c", script, *arguments]
        done = subprocess.run(command, cwd=tmp_path, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    answer("load-vocab", "labels", "labels.csv")
    answer("train", "words", "texts.tsv", "--jobs", "1")
    assert answer("suggest", "words", "--limit", "1", text="close the socket").startswith(f"<{uris[3]}>\tsockets\t")
    searched = answer("hyperopt", "words", "texts.tsv", "--trials", "3", "--jobs", "2", "--metric", "Precision@1")
    assert "Got best Precision@1 score 1.0000 with:\n---\nhidden_dropout=" in searched
    answer("learn", "words", "texts.tsv")
    assert "Precision@1:                  \t1.0000" in answer("eval", "words", "texts.tsv", "--jobs", "2")
