"""The public names: the one list of them, which type checkers read, and the package when it is imported."""

from .data.csr import CSR as CSR
from .data.csr import Dataset as Dataset
from .data.datasets import load_dataset as load_dataset
from .data.loading import load_file as load_file
from .data.public import load_public as load_public
from .data.synthetic import make_xmc as make_xmc
from .data.vectorizer import TextVectorizer as TextVectorizer
from .errors import DataError as DataError
from .errors import DivergenceError as DivergenceError
from .errors import MemoryEstimateError as MemoryEstimateError
from .errors import ModelFileError as ModelFileError
from .errors import WorkerDied as WorkerDied
from .estimators import XMLClassifier as XMLClassifier
from .estimators import XMLEnsemble as XMLEnsemble
from .estimators import load_model as load_model
from .estimators.inference import Measure as Measure
from .estimators.inference import Scorer as Scorer
from .estimators.inference.explanation import Explanation as Explanation
from .estimators.tuning import Trial as Trial
from .estimators.tuning import Tuning as Tuning
from .estimators.tuning import tune as tune
from .metrics import coverage_at_k as coverage_at_k
from .metrics import evaluate_ranking as evaluate_ranking
from .metrics import inverse_propensity as inverse_propensity
from .metrics import macro_f1_at_k as macro_f1_at_k
from .metrics import macro_precision_at_k as macro_precision_at_k
from .metrics import macro_recall_at_k as macro_recall_at_k
from .metrics import micro_f1_at_k as micro_f1_at_k
from .metrics import ndcg_at_k as ndcg_at_k
from .metrics import precision_at_k as precision_at_k
from .metrics import psndcg_at_k as psndcg_at_k
from .metrics import psprecision_at_k as psprecision_at_k
from .metrics import psrecall_at_k as psrecall_at_k
from .metrics import recall_at_k as recall_at_k
from .nn.schedules import Schedule as Schedule
from .training.checkpoints import Checkpoint as Checkpoint
from .training.job import Job as Job
from .training.loop import Run as Run
from .training.loop import train as train

__all__: list[str]
__version__: str
