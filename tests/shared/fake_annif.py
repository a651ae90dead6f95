"""What the backend takes from Annif, as little as it needs, where Annif is not installed; a project and a corpus."""

from __future__ import annotations

import importlib.util
import os
from types import ModuleType, SimpleNamespace
from typing import Any

import joblib
from sklearn.feature_extraction.text import TfidfVectorizer

HAS_ANNIF = importlib.util.find_spec("annif") is not None


class FakeException(Exception):
    def __init__(self, message, backend_id=None):
        super().__init__(message)
        self.message = message


Refused = importlib.import_module("annif.exception").AnnifException if HAS_ANNIF else FakeException


class AnnifLearningBackend:
    DEFAULT_PARAMETERS: dict[str, Any]
    initialize: Any
    _train: Any
    _learn: Any
    _suggest_batch: Any

    def __init__(self, backend_id, config_params, project):
        self.backend_id, self.config_params, self.project, self.datadir = (
            backend_id,
            config_params,
            project,
            project.datadir,
        )

    @property
    def params(self):
        return self._params({})

    def info(self, message):
        pass

    warning = info

    def _params(self, given):
        return {"limit": 100, **self.DEFAULT_PARAMETERS, **self.config_params, **(given or {})}

    def train(self, corpus, params=None, jobs=0):
        self._train(corpus, self._params(params), jobs)

    def learn(self, corpus, params=None):
        self._learn(corpus, self._params(params))

    def suggest(self, documents, params=None):
        self.initialize()
        return self._suggest_batch(documents, self._params(params))


class TfidfVectorizerMixin:
    vectorizer = datadir = None

    def initialize_vectorizer(self):
        if self.vectorizer is None:
            if not os.path.exists(os.path.join(self.datadir, "vectorizer")):
                raise Refused("vectorizer not found")
            self.vectorizer = joblib.load(os.path.join(self.datadir, "vectorizer"))

    def create_vectorizer(self, texts, options):
        self.vectorizer = TfidfVectorizer(**options, token_pattern=None)
        rows = self.vectorizer.fit_transform(texts)
        joblib.dump(self.vectorizer, os.path.join(self.datadir, "vectorizer"))
        return rows


class SuggestionBatch:
    def __init__(self, array):
        self.array = array


def modules():
    """Return the modules of Annif by their names."""
    named: dict[str, dict[str, Any]] = {
        "annif": {"create_app": None},
        "annif.backend": {"_backend_fns": {}},
        "annif.backend.backend": {"AnnifLearningBackend": AnnifLearningBackend},
        "annif.backend.mixins": {"TfidfVectorizerMixin": TfidfVectorizerMixin},
        "annif.exception": dict.fromkeys(
            ("NotInitializedException", "NotSupportedException", "OperationFailedException"), Refused
        ),
        "annif.suggestion": {"SuggestionBatch": SuggestionBatch},
        "annif.util": {
            "atomic_save": lambda saved, folder, name, method: method(saved, os.path.join(folder, name)),
            "boolean": lambda value: str(value).lower() in ("1", "yes", "true", "on"),
        },
    }
    found = {name: ModuleType(name) for name in named}
    for name, contents in named.items():
        vars(found[name]).update(contents)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(found[parent], child, found[name])
    return found


class Subjects:
    """A vocabulary: the labels of its subjects, None of a deprecated one."""

    def __init__(self, labels):
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    @property
    def active(self):
        return [(i, SimpleNamespace(labels={"en": label})) for i, label in enumerate(self.labels) if label is not None]


class Corpus:
    def __init__(self, texts, subjects):
        self.pairs = list(zip(texts, subjects, strict=True))

    @property
    def documents(self):
        return (SimpleNamespace(text=text, subject_set=subjects) for text, subjects in self.pairs)

    def is_empty(self):
        return not self.pairs


def words(text):
    """Return the words of a text; a function of a module, so that the vectorizer can be saved."""
    return text.lower().split()


def project(folder, labels):
    """Return a project in English with these labels of subjects."""
    folder.mkdir(exist_ok=True)
    analyzer = SimpleNamespace(tokenize_words=words)
    return SimpleNamespace(datadir=str(folder), analyzer=analyzer, subjects=Subjects(labels), vocab_lang="en")
