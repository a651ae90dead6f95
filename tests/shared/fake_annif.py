"""What the backend takes from Annif, as little as it needs, where Annif is not installed; a project and a corpus."""

from __future__ import annotations

import importlib.util
import os
from collections import namedtuple
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import optuna

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


class HPObjective:
    args: Any
    objective: Any

    @classmethod
    def init(cls, args):
        cls.args = args

    @classmethod
    def run_trial(cls, trial_id, storage_url, study_name):
        study = optuna.load_study(storage=storage_url, study_name=study_name)
        study.optimize(lambda trial: cls.objective(trial, cls.args), n_trials=1)
        return {"params": study.trials[-1].params, "value": study.trials[-1].value}


class HyperparameterOptimizer:
    _prepare: Any
    _postprocess: Any

    def __init__(self, backend, corpus, metric, objective):
        self._backend, self._corpus, self._metric, self._objective = backend, corpus, metric, objective

    def optimize(self, n_trials, n_jobs, results_file):
        self._objective.init(self._prepare(n_jobs))
        storage = f"sqlite:///{self._backend.datadir}/trials.db"
        study = optuna.create_study(direction="maximize", storage=storage)
        for i in range(n_trials):
            self._objective.run_trial(i, storage, study.study_name)
        return self._postprocess(study)


class EvaluationBatch:
    def __init__(self, subjects):
        pass

    def evaluate_many(self, suggested, subjects):
        best = np.asarray(suggested.array.argmax(axis=1)).ravel()
        self._right = np.mean([column in of_document for column, of_document in zip(best, subjects, strict=True)])

    def results(self, metrics=()):
        return {"Precision@1": self._right, "NDCG@5": None}


class SuggestionBatch:
    def __init__(self, array):
        self.array = array


def modules():
    """Return the modules of Annif by their names."""
    named: dict[str, dict[str, Any]] = {
        "annif": {"create_app": None},
        "annif.backend": {"_backend_fns": {}},
        "annif.backend.backend": {"AnnifLearningBackend": AnnifLearningBackend},
        "annif.backend.hyperopt": {
            "AnnifHyperoptBackend": type("AnnifHyperoptBackend", (), {}),
            "HPObjective": HPObjective,
            "HPRecommendation": namedtuple("HPRecommendation", "lines score"),
            "HyperparameterOptimizer": HyperparameterOptimizer,
        },
        "annif.corpus": {"SubjectSet": list},
        "annif.eval": {"EvaluationBatch": EvaluationBatch},
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
    """Return the words of a text."""
    return text.lower().split()


def project(folder, labels):
    """Return a project in English with these labels of subjects."""
    folder.mkdir(exist_ok=True)
    analyzer = SimpleNamespace(tokenize_words=words)
    return SimpleNamespace(datadir=str(folder), analyzer=analyzer, subjects=Subjects(labels), vocab_lang="en")
