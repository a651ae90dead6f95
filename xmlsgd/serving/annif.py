"""A backend of Annif (https://annif.org): a project with `backend=xmlsgd` trains, suggests, learns and is tuned.

Annif has no entry points for backends, only a dictionary. Importing this module adds the backend to it; the console
script `xmlsgd-annif` imports it and then runs Annif's command line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import annif.backend
import numpy as np
import optuna
import scipy.sparse as sp
from annif import create_app as create_app  # for WSGI servers: they start `xmlsgd.serving.annif:create_app`
from annif.backend.backend import AnnifLearningBackend
from annif.backend.hyperopt import AnnifHyperoptBackend, HPObjective, HPRecommendation, HyperparameterOptimizer
from annif.backend.mixins import TfidfVectorizerMixin
from annif.eval import EvaluationBatch
from annif.exception import NotInitializedException, NotSupportedException, OperationFailedException
from annif.suggestion import SuggestionBatch
from annif.util import atomic_save, boolean
from sklearn.base import clone

from ..data.csr import CSR, Dataset
from ..errors import DivergenceError, MemoryEstimateError, suggest
from ..estimators import XMLClassifier
from ..estimators.inference.compact import CompactParams
from ..estimators.tuning import SearchSpace

# Settings of a project that are no parameters of the classifier; Annif or this backend reads them.
OF_PROJECTS = ("name", "language", "backend", "vocab", "analyzer", "transform", "access", "allow_learn", "limit")


class XMLObjective(HPObjective):
    """A trial of the search: train on the rows of the last training, measure the suggestions for validation documents.

    args : the `XMLOptimizer`, which Annif copies to each process.
    """

    @classmethod
    def run_trial(cls, trial_id: int, storage_url: str, study_name: str) -> dict[str, Any]:
        """Run a trial. The first one tries the parameters of the project, so that the best is at least as good."""
        if trial_id == 0:
            optuna.load_study(storage=storage_url, study_name=study_name).enqueue_trial(cls.args.space.defaults)
        return super().run_trial(trial_id, storage_url, study_name)

    @classmethod
    def objective(cls, trial: Any, args: XMLOptimizer) -> float:
        """Return the metric of a trial."""
        model = clone(args.space.base).set_params(**args.space.parameters(trial))
        try:
            model.fit(*args.rows, label_texts=args.labels)
        except (DivergenceError, MemoryEstimateError) as error:
            raise optuna.TrialPruned(str(error)) from error
        return args.measure(model)


class XMLOptimizer(HyperparameterOptimizer):
    """Search for parameters as `xmlsgd tune` does, by a metric of validation documents."""

    _backend: XMLBackend
    rows: tuple[sp.csr_array, sp.csr_array]
    labels: sp.csr_array | None
    space: SearchSpace

    def _prepare(self, n_jobs: int = 1) -> XMLOptimizer:
        """Read the rows of the last training and the validation documents."""
        backend = self._backend
        with backend._refusals():
            backend.initialize_vectorizer()
            self.rows, self.labels = backend._read_rows(), backend._label_rows(backend.params)
            pairs = [(document.text, document.subject_set) for document in self._corpus.documents]
            self._X = backend.vectorizer.transform([text for text, _ in pairs])
            self._subjects = [subjects for _, subjects in pairs]
            model = XMLClassifier(**_classifier_parameters(backend.params), n_jobs=None if n_jobs == 1 else 1)
            X, Y = map(CSR.from_scipy, self.rows)
            plan = model.plan(*self.rows, label_texts=self.labels)
            self.space = SearchSpace(model, plan, Dataset(X, Y), self.labels)
        return self

    def measure(self, model: XMLClassifier) -> float:
        """Return the metric of a model."""
        backend = self._backend
        found = backend._best(model, backend._unavailable(model), self._X, int(backend.params["limit"]))
        batch = EvaluationBatch(backend.project.subjects)
        batch.evaluate_many(found, self._subjects)
        return float(batch.results(metrics=[self._metric])[self._metric])

    def _postprocess(self, study: Any) -> HPRecommendation:
        """Return the best parameters as lines for the project's configuration."""
        if not study.get_trials(states=[optuna.trial.TrialState.COMPLETE]):
            message = "no trial has ended, for the reasons above; set other parameters in the project"
            raise OperationFailedException(message, backend_id=self._backend.backend_id)
        found = self._normalize(study.best_params)
        return HPRecommendation(lines=[f"{name}={value}" for name, value in found.items()], score=study.best_value)

    def _normalize(self, hps: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters of `XMLClassifier` that a trial stands for."""
        return self.space.parameters(optuna.trial.FixedTrial(hps))


class XMLBackend(TfidfVectorizerMixin, AnnifHyperoptBackend, AnnifLearningBackend):
    """The backend: a TF-IDF vectorizer with the project's analyzer, and a classifier with a column per subject."""

    name = "xmlsgd"

    TRAIN_FILE = "xmlsgd-train.npz"  # rows of features, then of subjects; not counted as a model by Annif
    MODEL_FOLDER = "xmlsgd-model"
    # Words of labels count as evidence where a text has them, and rare ones most: hence no least frequency of words.
    DEFAULT_PARAMETERS = {"min_df": 1, "ngram": 1, "label_texts": True}  # noqa: RUF012

    _loaded: tuple[XMLClassifier, np.ndarray] | None = None  # the model, and the columns that it must not suggest

    def initialize(self, parallel: bool = False) -> None:
        """Load vectorizer and model; parallel : whether this is one of several processes, which use one thread each."""
        self.initialize_vectorizer()
        if self._loaded is None:
            self._loaded = self._load()
        if parallel:
            self._loaded[0].n_jobs = 1

    def get_hp_optimizer(self, corpus: Any, metric: str) -> XMLOptimizer:
        """Return the search for better parameters on validation documents; the project must be trained."""
        return XMLOptimizer(self, corpus, metric, XMLObjective)

    def _train(self, corpus: Any, params: dict[str, Any], jobs: int = 0) -> None:
        """Train on a corpus; if it is "cached", train again on the rows that the last training kept."""
        known = {*OF_PROJECTS, *self.DEFAULT_PARAMETERS, *_parameter_names()}
        for name in params:
            if name not in known:
                self.warning(f"{name}: is no setting of Annif or xmlsgd, and changes nothing{suggest(name, known)}")
        with self._refusals():
            if corpus == "cached":
                self.initialize_vectorizer()
                X, Y = self._read_rows()
            else:
                X, Y = self._new_rows(corpus, params)
            model = XMLClassifier(**_classifier_parameters(params), n_jobs=jobs or None)
            model.fit(X, Y, label_texts=self._label_rows(params))
            # Compact models cannot learn; they are a third as large, and processes share their memory.
            self._save(model, compact=not boolean(params.get("allow_learn", False)))

    def _learn(self, corpus: Any, params: dict[str, Any]) -> None:
        """Learn from more documents, which may have subjects that were added to the vocabulary since training."""
        self.initialize()
        model, _ = self._loaded or self._load()
        if isinstance(model.fitted_.params, CompactParams):
            raise NotSupportedException(
                "trained without allow_learn=true: set it, and train again", backend_id=self.backend_id
            )
        with self._refusals():
            model = XMLClassifier.load(self._path(self.MODEL_FOLDER))
            X, Y = self._rows(corpus, self.vectorizer.transform)
            known = len(model.classes_)
            labels = self._label_rows(params, known) if Y.shape[1] > known else None  # of new subjects only
            model.partial_fit(X, Y, label_texts=labels)
            self._save(model)

    def _suggest_batch(self, documents: list[Any], params: dict[str, Any]) -> SuggestionBatch:
        """Return the `limit` most probable subjects of each document, with their probabilities."""
        X = self.vectorizer.transform([document.text for document in documents])
        with self._refusals():
            return self._best(*(self._loaded or self._load()), X, int(params["limit"]))

    def _best(self, model: XMLClassifier, unavailable: np.ndarray, X: Any, limit: int) -> SuggestionBatch:
        """Return the `limit` most probable subjects of each row; unavailable : columns that must not be suggested."""
        found = model.predict_topk(X, limit, exclude=unavailable, proba=True, as_csr=True)
        found.data[np.repeat(np.diff(X.indptr) == 0, np.diff(found.indptr))] = 0  # texts without a known word
        shape = (X.shape[0], len(self.project.subjects))
        found = sp.csr_array((found.data.astype(np.float32), found.indices, found.indptr), shape)
        found.eliminate_zeros()
        return SuggestionBatch(found)

    def _new_rows(self, corpus: Any, params: dict[str, Any]) -> tuple[sp.csr_array, sp.csr_array]:
        """Fit the vectorizer to a corpus, and return its rows X, Y; they are saved for training on "cached" later."""
        options = {
            "min_df": int(params["min_df"]),
            "ngram_range": (1, int(params["ngram"])),
            "tokenizer": self.project.analyzer.tokenize_words,
            "sublinear_tf": True,
            "dtype": np.float32,
        }
        labels = self._label_texts() if boolean(params["label_texts"]) else []  # their words are features as well

        def fitted(texts: Iterator[str]) -> Any:
            rows = self.create_vectorizer(chain(texts, labels), options)
            return rows[: rows.shape[0] - len(labels)]

        X, Y = self._rows(corpus, fitted)
        rows = sp.hstack([X, Y], format="csr")
        atomic_save(rows, self.datadir, self.TRAIN_FILE, method=lambda rows, file: sp.save_npz(file, rows))
        return X, Y

    def _read_rows(self) -> tuple[sp.csr_array, sp.csr_array]:
        """Return the rows X, Y that the last training saved."""
        rows, n_features = sp.load_npz(self._path(self.TRAIN_FILE)), len(self.vectorizer.vocabulary_)
        X, Y = rows[:, :n_features], rows[:, n_features:]
        Y.resize(rows.shape[0], len(self.project.subjects))  # the vocabulary may have grown
        return X, Y

    def _rows(self, corpus: Any, vectorize: Any) -> tuple[sp.csr_array, sp.csr_array]:
        """Return X and Y of the documents that have subjects and known words; Y has a column per subject."""
        if corpus.is_empty():
            raise NotSupportedException("there must be at least one document to learn from", backend_id=self.backend_id)
        subjects: list[list[int]] = []

        def texts() -> Iterator[str]:
            for document in corpus.documents:
                subjects.append(list(document.subject_set))
                yield document.text

        X = sp.csr_array(vectorize(texts()))
        indices = np.concatenate([np.asarray(each, np.int32) for each in subjects])
        indptr = np.cumsum([0, *map(len, subjects)])
        shape = (len(subjects), len(self.project.subjects))
        Y = sp.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape)
        kept = np.flatnonzero((np.diff(X.indptr) > 0) & (np.diff(Y.indptr) > 0))
        return X[kept], Y[kept]

    def _label_texts(self, first: int = 0) -> list[str]:
        """Return the label of each subject in the project's language; an empty text for those before `first`."""
        texts = [""] * len(self.project.subjects)
        for column, subject in self.project.subjects.active:
            if column >= first:
                texts[column] = subject.labels.get(self.project.vocab_lang) or ""
        return texts

    def _label_rows(self, params: dict[str, Any], first: int = 0) -> Any:
        """Return the features of the labels of subjects from `first` on; None without `label_texts`."""
        return self.vectorizer.transform(self._label_texts(first)) if boolean(params["label_texts"]) else None

    def _load(self) -> tuple[XMLClassifier, np.ndarray]:
        """Return the saved model, and the columns that it must not suggest."""
        with self._refusals():
            model = XMLClassifier.load(self._path(self.MODEL_FOLDER))
        model.n_jobs = None  # instead of the number of the process that trained it
        return model, self._unavailable(model)

    def _unavailable(self, model: XMLClassifier) -> np.ndarray:
        """Return the columns of subjects that are deprecated or excluded from the project."""
        active = [column for column, _ in self.project.subjects.active]
        return np.setdiff1d(np.arange(len(model.classes_)), active)

    def _save(self, model: XMLClassifier, compact: bool = False) -> None:
        """Save a model, and make suggestions with it from now on."""
        self.info("saving the model")
        model.save(Path(self.datadir, self.MODEL_FOLDER), compact=compact)
        self._loaded = self._load()

    def _path(self, name: str) -> Path:
        """Return the path of a file or folder that training has written; raise an error if there is none."""
        path = Path(self.datadir, name)
        if not path.exists():
            raise NotInitializedException(f"{path} not found: train the project", backend_id=self.backend_id)
        return path

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn errors of xmlsgd into those of Annif, which prints them in one line."""
        try:
            yield
        except (ValueError, MemoryEstimateError, DivergenceError) as error:
            raise OperationFailedException(str(error), backend_id=self.backend_id) from error


def _classifier_parameters(params: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a project that are parameters of `XMLClassifier`, converted from texts."""
    return {name: _read(params[name]) for name in _parameter_names().intersection(params)}


def _parameter_names() -> set[str]:
    """Return the parameters of `XMLClassifier` that a project may set."""
    return set(XMLClassifier().get_params()).difference(["n_jobs", "vectorizer"])


def _read(value: Any) -> Any:
    """Convert a text such as 0.5, True or (512, 256) to the Python value; return any other text unchanged."""
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value


def main() -> None:
    """Run Annif's command line, in which projects may have `backend=xmlsgd`."""
    from annif.cli import cli

    cli()


annif.backend._backend_fns[XMLBackend.name] = lambda: XMLBackend
