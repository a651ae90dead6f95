"""The recipes of CONTRIBUTING.md: one file adds a part, which is found by name and refused if incomplete."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest

import xmlsgd.metrics
from shared.paths import DATA
from xmlsgd import DataError, XMLClassifier, algorithms, devices, make_xmc
from xmlsgd.algorithms.combiners import COMBINERS
from xmlsgd.algorithms.outer import OUTERS, Outer
from xmlsgd.cli import main
from xmlsgd.data import formats
from xmlsgd.data.formats.libsvm import write_libsvm
from xmlsgd.nn import losses, optimizers, samplers
from xmlsgd.nn.schedules import SCHEDULES

SMALL = {"hidden_layer_sizes": (4,), "candidates": 0, "max_epochs": 1, "n_jobs": 1, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    return make_xmc(200, 60, 20, nnz_per_row=5, labels_per_row=2, random_state=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a saved model of the rows in `data/`."""
    path = tmp_path_factory.mktemp("contributing") / "model"
    assert main(["train", str(DATA / "train.txt"), "--out", str(path), "--quiet", *flags(SMALL)]) == 0
    return path


def flags(parameters: dict[str, object]) -> list[str]:
    """Return parameters as flags of the command line."""
    texts = {name: ",".join(map(str, v)) if isinstance(v, tuple) else str(v) for name, v in parameters.items()}
    return [word for name, text in texts.items() for word in (f"--{name}", text)]


def check_trains(data, tmp_path, **parameters):
    """Train through the estimator and the command line; check that both name the part and give the same model."""
    parameters = {**SMALL, **parameters}
    model = XMLClassifier(**parameters).fit(data.X, data.Y)
    assert np.isfinite(model.params_).all()
    rows, out = tmp_path / "rows.txt", tmp_path / "trained"
    write_libsvm(data, rows)
    assert main(["train", str(rows), "--out", str(out), "--quiet", *flags(parameters)]) == 0
    np.testing.assert_array_equal(XMLClassifier.load(out).params_, model.params_)


def test_a_metric_is_one_file(add_part, folder, tmp_path, data):
    add_part(
        xmlsgd.metrics,
        "hit_rate",
        '''
        """Share of rows with a true label among the top k."""

        import numpy as np

        from .comparison import compare


        def hit_rate_at_k(Y_true, predicted, k=5):
            """Return the hit rate at 1..k."""
            return np.maximum.accumulate(compare(Y_true, predicted, k).hits, axis=1).mean(axis=0)
        ''',
    )
    model = XMLClassifier(**SMALL).fit(data.X, data.Y)
    found = xmlsgd.metrics.evaluate_ranking(data.Y, model.predict_topk(data.X)[0], metrics=["hit_rate"])
    assert found["hit_rate@1"] == found["P@1"] <= found["hit_rate@5"]
    out = tmp_path / "result.json"
    words = ["evaluate", str(folder), str(DATA / "test.txt"), "--metric", "hit_rate", "--json", str(out), "--quiet"]
    assert main(words) == 0
    result = json.loads(out.read_text())
    assert result["hit_rate@1"] == pytest.approx(result["P@1"])
    with pytest.raises(DataError, match=r"metric must be one of coverage, hit_rate, .*, got 'hits'"):
        xmlsgd.metrics.metric("hits")


def test_a_loss_is_one_file(add_part, data, tmp_path):
    add_part(
        losses,
        "pseudo_huber",
        '''
        """Pseudo-Huber loss of the distance to 1 for labels of the row, to -1 for others."""

        import numpy as np

        from .base import Loss


        def value_and_gradient(z, target, log_sum):
            """Return sqrt(1 + e^2) - 1 and its derivative, with e = z - (2 target - 1)."""
            error = z - (2 * target - 1)
            return np.sqrt(1 + error * error) - 1, error / np.sqrt(1 + error * error)


        def initial_bias(frequency):
            """Return the mean of the targets."""
            return 2 * frequency - 1


        LOSS = Loss(value_and_gradient, initial_bias)
        ''',
    )
    check_trains(data, tmp_path, loss="pseudo_huber")


def test_an_optimizer_is_one_file(add_part, data, tmp_path):
    add_part(
        optimizers,
        "sign_sgd",
        '''
        """Sign SGD (Bernstein et al. 2018): w <- w - learning_rate sign(g)."""

        from dataclasses import dataclass

        import numpy as np

        from .base import RATE, Optimizer


        @dataclass(frozen=True)
        class SignSGD(Optimizer):
            """Move each parameter by the sign of its gradient."""

            default_rate = 0.003

            @staticmethod
            def step(g, s, t, h):
                """Return learning_rate sign(g)."""
                return h[RATE] * np.sign(g)


        OPTIMIZER = SignSGD
        ''',
    )
    check_trains(data, tmp_path, optimizer="sign_sgd")


def test_a_sampler_is_one_file(add_part, data, tmp_path):
    add_part(
        samplers,
        "first_labels",
        '''
        """The true labels of the batch and the first labels."""

        from dataclasses import dataclass

        import numpy as np

        from .base import Sampler


        @dataclass(frozen=True)
        class FirstLabels(Sampler):
            """Train the true labels of the batch and the first `negatives` labels."""

            negatives: int

            def draw(self, batch):
                """Return the labels of a batch."""
                return batch.with_true(np.arange(self.negatives))


        SAMPLER = FirstLabels
        ''',
    )
    check_trains(data, tmp_path, sampler="first_labels", negatives=3, batch_size=2)


def test_an_algorithm_with_its_merge_rule_is_one_file(add_part, data, tmp_path, capsys):
    add_part(
        algorithms,
        "median",
        '''
        """Rounds of some batches; then the center becomes the median of the replicas."""

        from dataclasses import dataclass

        import numpy as np

        from .rounds import Rounds


        @dataclass
        class Median(Rounds):
            """steps : batches of a worker between merges."""

            steps: int = 4

            @property
            def round_rows(self):
                """Return the rows of a round."""
                return self.steps * self.batch * len(self.size)

            def merge_replicas(self, comm, work):
                """Take the median as the new center."""

                def move(params):
                    params.center[:] = np.median(np.stack(list(params.replicas.values())), axis=0)

                self.merge_into_center(comm, work, move)
        ''',
    )
    check_trains(data, tmp_path, algorithm="median/steps=2")
    with pytest.raises(DataError, match=r"steps: must be a whole number, got '2\.5'"):
        algorithms.check_algorithm("median/steps=2.5")
    words = ["simulate", str(DATA / "train.txt"), "--test", str(DATA / "test.txt"), "--fleet", "cpu:1*2", "--quiet"]
    assert main([*words, "--compare", "median,elastic", "--epochs", "1", "--hidden", "4", "--n-jobs", "1"]) == 0
    assert "median" in capsys.readouterr().out


@dataclass(frozen=True)
class Lookahead(Outer):
    """Move the center by a share of the way to what the replicas combine to."""

    share: float = 0.5

    def apply(self, params, combined):
        params.center += np.float32(self.share) * (combined - params.center)


def test_a_schedule_a_combiner_and_an_outer_optimizer_are_an_entry_of_a_table_each(monkeypatch, data, tmp_path):
    monkeypatch.setitem(SCHEDULES, "halves", lambda done: 0.5 ** int(4 * done))
    monkeypatch.setitem(
        COMBINERS, "median", lambda params, _: np.median(np.stack(list(params.replicas.values())), axis=0)
    )
    monkeypatch.setitem(OUTERS, "lookahead", Lookahead)
    check_trains(data, tmp_path, learning_rate="halves", algorithm="local_sgd/combine=median/outer=lookahead:0.8")
    with pytest.raises(DataError, match="combine must be one of mean, adasum, median, got 'meidan'; did you mean"):
        algorithms.check_algorithm("local_sgd/combine=meidan")


def test_a_device_is_one_file(add_part, data, tmp_path):
    add_part(
        devices,
        "plain",
        '''
        """The reference under another name."""

        from .reference import Reference


        class Plain(Reference):
            """Compute everything as the reference does."""


        DEVICE = Plain
        ''',
    )
    check_trains(data, tmp_path, devices="plain")


@pytest.mark.parametrize(
    ("classes", "complaint"),
    [
        ("class One(Algorithm):\n    pass\n", "algorithm 'own': One must define start, worker_joined, worker_left"),
        (
            "class One(Algorithm):\n    pass\n\n\nclass Two(One):\n    pass\n",
            "algorithm 'own': a module must define one subclass of Algorithm, got One, Two",
        ),
    ],
)
def test_an_algorithm_that_lacks_methods_and_a_second_one_in_a_file_are_refused(add_part, classes, complaint):
    add_part(algorithms, "own", f"from xmlsgd.algorithms.base import Algorithm\n\n\n{classes}")
    with pytest.raises(DataError, match=complaint):
        algorithms.check_algorithm("own")


@pytest.mark.parametrize(
    ("package", "find", "complaint"),
    [
        (losses, losses.find_loss, "loss 'empty': .*empty.py does not define LOSS"),
        (optimizers, optimizers.find_optimizer, "optimizer 'empty': .*empty.py does not define OPTIMIZER"),
        (samplers, samplers.find_sampler, "sampler 'empty': .*empty.py does not define SAMPLER"),
        (formats, formats.get_format, "format 'empty': .*empty.py does not define FORMAT"),
        (devices, devices.get_device, "device must be one of"),
        (xmlsgd.metrics, xmlsgd.metrics.metric, "metric must be one of"),
    ],
)
def test_a_file_without_its_part_is_refused(add_part, package, find, complaint):
    add_part(package, "empty", "")
    with pytest.raises(DataError, match=complaint):
        find("empty")
