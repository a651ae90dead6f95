"""A backend of Annif (https://annif.org): a project with `backend=xmlsgd` trains, suggests, learns and is tuned.

Annif has no entry points for backends, only a dictionary. Importing this module adds the backend to it; the console
script `xmlsgd-annif` imports it and then runs Annif's command line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import annif.backend
import joblib
import numpy as np
import optuna
import scipy.sparse as sp
from annif import create_app as create_app  # for WSGI servers: they start `xmlsgd.serving.annif:create_app`
from annif.backend.backend import AnnifLearningBackend
from annif.backend.hyperopt import AnnifHyperoptBackend, HPObjective, HPRecommendation, HyperparameterOptimizer
from annif.corpus import SubjectSet
from annif.eval import EvaluationBatch
from annif.exception import NotInitializedException, NotSupportedException, OperationFailedException
from annif.suggestion import SuggestionBatch
from annif.util import atomic_save, boolean
from sklearn.base import clone

from ..data.csr import CSR
from ..data.validation import is_positive_integer
from ..data.vectorizer import MAX_N, TextVectorizer
from ..errors import DataError, DivergenceError, MemoryEstimateError, shorten, suggest
from ..estimators import XMLClassifier
from ..estimators.inference.compact import CompactParams
from ..estimators.parameters import check_parameters
from ..estimators.training_data import GivenRows
from ..estimators.tuning import SearchSpace
from ..estimators.vectorizer_choice import choose_vectorizer

# Settings of a project that are no parameters of the classifier; Annif or this backend reads them.
ANNIF_SETTINGS = ("name", "language", "backend", "vocab", "analyzer", "transform", "access", "allow_learn", "limit")
# Settings that ask for words as features. Without them, words, pairs of words or n-grams of characters are chosen.
WORD_SETTINGS = ("min_df", "ngram")

Rows = tuple[sp.csr_array, sp.csr_array]  # X and Y


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
            model._fit_data(args.space.data)
        except (DivergenceError, MemoryEstimateError) as error:
            raise optuna.TrialPruned(str(error)) from error
        return args.measure(model)


class XMLOptimizer(HyperparameterOptimizer):
    """Search for parameters as `xmlsgd tune` does, by a metric of validation documents."""

    _backend: XMLBackend
    space: SearchSpace

    def _prepare(self, n_jobs: int = 1) -> XMLOptimizer:
        """Read the rows of the last training and the validation documents."""
        backend = self._backend
        with backend._errors_of_annif():
            self._check_metric()
            vectorizer, rows = backend._read_rows()
            label_rows = backend._label_rows(vectorizer, backend.params)
            documents = list(self._corpus.documents)
            self._X = vectorizer.transform([backend._words(document.text) for document in documents])
            self._subjects = [document.subject_set for document in documents]
            model = XMLClassifier(**_classifier_parameters(backend.params), n_jobs=None if n_jobs == 1 else 1)
            data = model._read_rows(GivenRows(*rows, label_texts=label_rows))
            self.space = SearchSpace(model, model._planned(data)[0], data)
        return self

    def measure(self, model: XMLClassifier) -> float:
        """Return the metric of a model."""
        backend = self._backend
        found = backend._suggestions(model, backend._unavailable(model), self._X, _limit(backend.params))
        batch = EvaluationBatch(backend.project.subjects)
        batch.evaluate_many(found, self._subjects)
        return float(batch.results(metrics=[self._metric])[self._metric])

    def _check_metric(self) -> None:
        """Raise `DataError` for a metric that Annif does not know, before it would fail at the end of a trial."""
        batch = EvaluationBatch(self._backend.project.subjects)
        nothing = SuggestionBatch(sp.csr_array((1, len(self._backend.project.subjects)), dtype=np.float32))
        batch.evaluate_many(nothing, [SubjectSet()])
        if self._metric not in (known := batch.results()):
            raise DataError(
                f"metric: must be one that `eval` prints, got {self._metric!r}{suggest(self._metric, known)}"
            )

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


class XMLBackend(AnnifHyperoptBackend, AnnifLearningBackend):
    """The backend: a classifier of the words that the project's analyzer finds, with a column per subject."""

    name = "xmlsgd"

    TRAIN_FILE = "xmlsgd-train.joblib"  # vectorizer, X and Y of the last training; by its name no model for Annif
    MODEL_FOLDER = "xmlsgd-model"
    DEFAULT_PARAMETERS = {"label_texts": True}  # noqa: RUF012

    _loaded: tuple[XMLClassifier, np.ndarray] | None = None  # the model, and the columns that it must not suggest

    def initialize(self, parallel: bool = False) -> None:
        """Load the model; parallel : whether this is one of several processes, which use one thread each."""
        if self._loaded is None:
            self._loaded = self._load()
        if parallel:
            self._loaded[0].n_jobs = 1

    def get_hp_optimizer(self, corpus: Any, metric: str) -> XMLOptimizer:
        """Return the search for better parameters on validation documents; the project must be trained."""
        return XMLOptimizer(self, corpus, metric, XMLObjective)

    def _train(self, corpus: Any, params: dict[str, Any], jobs: int = 0) -> None:
        """Train on a corpus; if it is "cached", train again on the rows that the last training kept."""
        known = {*ANNIF_SETTINGS, *WORD_SETTINGS, *self.DEFAULT_PARAMETERS, *_parameter_names()}
        for name in params:
            if name not in known:
                self.warning(f"{name}: is no setting of Annif or xmlsgd, and changes nothing{suggest(name, known)}")
        with self._errors_of_annif():
            model = XMLClassifier(**_classifier_parameters(params), n_jobs=jobs or None)
            # All settings are checked before a long corpus is read.
            check_parameters(model)
            _limit(params)
            learns = _is_true(params, "allow_learn")
            _is_true(params, "label_texts")
            vectorizer, (X, Y) = self._cached_rows(params) if corpus == "cached" else self._new_rows(corpus, params)
            model.set_params(vectorizer=vectorizer).fit(X, Y, label_texts=self._label_rows(vectorizer, params))
            if corpus != "cached":
                atomic_save((vectorizer, X, Y), self.datadir, self.TRAIN_FILE, method=joblib.dump)
            # Compact models cannot learn; they are about half as large, and processes share their memory.
            self._save(model, compact=not learns)

    def _learn(self, corpus: Any, params: dict[str, Any]) -> None:
        """Learn from more documents, which may have subjects that were added to the vocabulary since training."""
        self.initialize()
        model, _ = self._loaded or self._load()
        if isinstance(model.fitted_.params, CompactParams):
            raise NotSupportedException(
                "trained without allow_learn=true: set it, and train again", backend_id=self.backend_id
            )
        with self._errors_of_annif():
            model = XMLClassifier.load(self._path(self.MODEL_FOLDER))
            texts, Y = self._read_documents(corpus)
            known = len(model.classes_)
            if Y.shape[1] < known:
                text = f"the vocabulary has {Y.shape[1]} subjects, fewer than the {known} of the model; train again"
                raise OperationFailedException(text, backend_id=self.backend_id)
            # Only of new subjects, as the texts of the others were learned in training.
            labels = self._label_texts(known) if Y.shape[1] > known and _is_true(params, "label_texts") else None
            model.partial_fit(texts, Y, label_texts=labels)
            self._save(model)

    def _suggest_batch(self, documents: list[Any], params: dict[str, Any]) -> SuggestionBatch:
        """Return the `limit` most probable subjects of each document, with their probabilities."""
        with self._errors_of_annif():
            model, unavailable = self._loaded or self._load()
            X = model.vectorizer_.transform([self._words(document.text) for document in documents])
            return self._suggestions(model, unavailable, X, _limit(params))

    def _suggestions(self, model: XMLClassifier, unavailable: np.ndarray, X: Any, limit: int) -> SuggestionBatch:
        """Return the `limit` most probable subjects of each row; unavailable : columns that must not be suggested."""
        found = model.predict_topk(X, limit, exclude=unavailable, proba=True, as_csr=True)
        found.data[np.repeat(np.diff(X.indptr) == 0, np.diff(found.indptr))] = 0  # texts without a known word
        shape = (X.shape[0], len(self.project.subjects))
        found = sp.csr_array((found.data.astype(np.float32), found.indices, found.indptr), shape)
        found.eliminate_zeros()
        return SuggestionBatch(found)

    def _new_rows(self, corpus: Any, params: dict[str, Any]) -> tuple[TextVectorizer, Rows]:
        """Fit a vectorizer to a corpus; return it with its rows."""
        vectorizer = _vectorizer_of_words(params)
        texts, Y = self._read_documents(corpus)
        if vectorizer is None:
            vectorizer = choose_vectorizer(texts, CSR.from_scipy(Y))
        labels = self._label_texts() if _is_true(params, "label_texts") else ()  # their words are features as well
        X = vectorizer.fit(texts, label_texts=labels).transform(texts)
        self.info(f"texts: {vectorizer!r}; {vectorizer.reason}")
        return vectorizer, (X, Y)

    def _cached_rows(self, params: dict[str, Any]) -> tuple[TextVectorizer, Rows]:
        """Return the vectorizer and the rows of the last training on a corpus; warn if they are not as `params` ask."""
        vectorizer, rows = self._read_rows()
        wanted = _vectorizer_of_words(params)
        if wanted is not None and wanted.options != vectorizer.options:
            self.warning("ngram, min_df: change nothing on cached rows, which have the features of their training")
        return vectorizer, rows

    def _read_rows(self) -> tuple[TextVectorizer, Rows]:
        """Return the vectorizer and the rows of the last training on a corpus."""
        path = self._path(self.TRAIN_FILE)
        try:
            vectorizer, X, Y = joblib.load(path)
        except Exception as error:  # a damaged pickle raises errors of many classes
            text = f"{path} cannot be read ({shorten(str(error))}); train the project on documents"
            raise OperationFailedException(text, backend_id=self.backend_id) from error
        Y.resize(Y.shape[0], len(self.project.subjects))  # the vocabulary may have grown
        return vectorizer, (X, Y)

    def _read_documents(self, corpus: Any) -> tuple[list[str], sp.csr_array]:
        """Return the words, and the subjects, of the documents that have both; a matrix with a column per subject."""
        texts: list[str] = []
        subjects: list[list[int]] = []
        for document in corpus.documents:
            if document.subject_set and (words := self._words(document.text)):
                texts.append(words)
                subjects.append(list(document.subject_set))
        if not texts:
            needed = "there must be at least one document with words and subjects to learn from"
            raise NotSupportedException(needed, backend_id=self.backend_id)
        indices = np.concatenate([np.asarray(each, np.int32) for each in subjects])
        indptr = np.cumsum([0, *map(len, subjects)])
        shape = (len(subjects), len(self.project.subjects))
        return texts, sp.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape)

    def _words(self, text: str) -> str:
        """Return the words of a text that the project's analyzer finds, joined by spaces."""
        return " ".join(self.project.analyzer.tokenize_words(text))

    def _label_texts(self, first: int = 0) -> list[str]:
        """Return the words of the label of each subject in the project's language; "" for those before `first`."""
        texts = [""] * len(self.project.subjects)
        for column, subject in self.project.subjects.active:
            if column >= first:
                texts[column] = self._words(subject.labels.get(self.project.vocab_lang) or "")
        return texts

    def _label_rows(self, vectorizer: TextVectorizer, params: dict[str, Any]) -> Any:
        """Return the features of the labels of subjects; None without `label_texts`."""
        return vectorizer.transform(self._label_texts()) if _is_true(params, "label_texts") else None

    def _load(self) -> tuple[XMLClassifier, np.ndarray]:
        """Return the saved model, and the columns that it must not suggest."""
        with self._errors_of_annif():
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
            raise NotInitializedException(
                f"{path} not found: train the project on documents", backend_id=self.backend_id
            )
        return path

    @contextmanager
    def _errors_of_annif(self) -> Iterator[None]:
        """Turn errors of xmlsgd into those of Annif, which prints them in one line."""
        try:
            yield
        except (ValueError, OSError, MemoryEstimateError, DivergenceError) as error:
            raise OperationFailedException(str(error), backend_id=self.backend_id) from error


def _is_true(params: dict[str, Any], name: str) -> bool:
    """Return whether a setting is true, in Annif's words for that; Annif takes all others for false."""
    value = params.get(name, False)
    if not boolean(value) and str(value).lower() not in ("0", "no", "false", "off"):
        raise DataError(f"{name}: must be true or false, got {shorten(value)}")
    return boolean(value)


def _limit(params: dict[str, Any]) -> int:
    """Return the most subjects of a document."""
    limit = _python_value(params["limit"])
    if not is_positive_integer(limit):
        raise DataError(f"limit: must be a positive integer, got {shorten(limit)}")
    return int(limit)


def _vectorizer_of_words(params: dict[str, Any]) -> TextVectorizer | None:
    """Return the vectorizer of words that the settings ask for; None if they leave the choice of features."""
    if not any(name in params for name in WORD_SETTINGS):
        return None
    longest, min_df = (_python_value(params.get(name, 1)) for name in ("ngram", "min_df"))
    if not (is_positive_integer(longest) and longest <= MAX_N):
        raise DataError(f"ngram: must be an integer from 1 to {MAX_N}, got {shorten(longest)}")
    vectorizer = TextVectorizer(min_df=min_df, ngram_range=(1, longest))
    vectorizer.check_options()
    return vectorizer


def _classifier_parameters(params: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a project that are parameters of `XMLClassifier`, converted from texts."""
    return {name: _python_value(params[name]) for name in _parameter_names().intersection(params)}


def _parameter_names() -> set[str]:
    """Return the parameters of `XMLClassifier` that a project may set."""
    return set(XMLClassifier().get_params()).difference(["n_jobs", "vectorizer"])


def _python_value(value: Any) -> Any:
    """Convert a text such as 0.5, True or (512, 256) to the Python value; return any other text unchanged."""
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value


annif.backend._backend_fns[XMLBackend.name] = lambda: XMLBackend
