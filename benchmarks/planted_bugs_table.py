"""The planted bugs: where each is, what it changes, and the fast tests that should find it."""

from __future__ import annotations

from typing import NamedTuple


class Bug(NamedTuple):
    """A text of a file and its replacement: what goes wrong, in plain words, and the tests that should find it."""

    area: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


OUTPUT_LAYER = ("tests/devices/test_output_layer.py",)
INPUT_LAYER = ("tests/devices/test_devices.py",)
GPU = ("tests/devices/gpu/test_cuda_mutants.py", "tests/devices/gpu/test_cuda_softmax.py")
ROUTER = ("tests/training/test_router.py",)
MERGING = ("tests/training/test_merging.py", "tests/algorithms/test_local_sgd.py")
CHECKPOINT = ("tests/training/checkpoints/test_checkpoint.py", "tests/training/checkpoints/test_refused.py")
METRICS = ("tests/metrics",)
FILES = ("tests/data/files",)

BUGS = (
    # Devices: the reference, CPU kernels, CUDA kernels
    Bug(
        "reference",
        "dropout keeps the entries that it should drop",
        "xmlsgd/devices/reference.py",
        "return hashed(dropout.seed, index) >= dropout.threshold",
        "return hashed(dropout.seed, index) < dropout.threshold",
        ("tests/devices/test_dropout.py",),
    ),
    Bug(
        "reference",
        "the gradient is clipped without its norm",
        "xmlsgd/devices/reference.py",
        "g = g * (limit / norm)",
        "g = g * limit",
        OUTPUT_LAYER,
    ),
    Bug(
        "reference",
        "top-k breaks ties by the larger label",
        "xmlsgd/devices/reference.py",
        'order = np.argsort(-Z, axis=1, kind="stable")[:, :k]',
        "order = np.argsort(-Z[:, ::-1], axis=1)[:, :k]",
        ("tests/devices/test_top_k.py",),
    ),
    Bug(
        "CPU kernels",
        "a list of the best labels is in the wrong order",
        "xmlsgd/devices/cpu/kernels/logits.py",
        "while j > 0 and (scores[j - 1] < score",
        "while j > 1 and (scores[j - 1] < score",
        ("tests/devices/test_top_k.py",),
    ),
    Bug(
        "CUDA kernels",
        "the last entry of a feature is left out of its gradient",
        "xmlsgd/devices/cuda/kernels/sparse.cu",
        "e + u < n &&",
        "e + u < n - 1 &&",
        GPU,
    ),
    Bug(
        "CUDA kernels",
        "weight decay is left out",
        "xmlsgd/devices/cuda/kernels/common.cu",
        "moved = *w * (1.0f - rate * decay)",
        "moved = *w",
        ("tests/devices/gpu/test_cuda_softmax.py", *OUTPUT_LAYER),
    ),
    Bug(
        "CUDA kernels",
        "positives of other chunks are corrected too",
        "xmlsgd/devices/cuda/kernels/binary.cu",
        "start, start + C, nullptr",
        "start, n + start + C, nullptr",
        GPU,
    ),
    Bug(
        "CUDA kernels",
        "the bias is left out of the logits of a softmax",
        "xmlsgd/devices/cuda/kernels/softmax.cu",
        "b[at + c] - shift",
        "-shift",
        GPU,
    ),
    Bug(
        "CUDA kernels",
        "NaN ranks first",
        "xmlsgd/devices/cuda/kernels/top_k.cu",
        "if (score != score) return (u64)(~label);",
        "",
        ("tests/devices/test_top_k.py",),
    ),
    Bug(
        "CUDA host",
        "SGD inside a product forgets the decay",
        "xmlsgd/devices/cuda/updates.py",
        "np.array([-rate, 1 - rate * decay], np.float32)",
        "np.array([-rate, 1], np.float32)",
        GPU,
    ),
    Bug(
        "CUDA host",
        "a staging buffer is written before its copy is complete",
        "xmlsgd/devices/cuda/staging.py",
        "        slot.copied.synchronize()\n",
        "",
        ("tests/devices/gpu/test_cuda.py",),
    ),
    # Losses, optimizers, samplers
    Bug(
        "losses",
        "the CPU kernel of BCE takes twice the gradient of a label",
        "xmlsgd/nn/losses/bce.py",
        "return -scale * z, -scale",
        "return -scale * z, -scale - scale",
        OUTPUT_LAYER,
    ),
    Bug(
        "losses",
        "softmax does not normalize its targets",
        "xmlsgd/nn/losses/softmax.py",
        "return target * (log_sum - z), np.exp(z - log_sum) - target",
        "return target * (log_sum - z), np.exp(z - log_sum) - (target > 0)",
        ("tests/devices/test_gradients.py", *OUTPUT_LAYER),
    ),
    Bug(
        "optimizers",
        "RMSprop and Adam do not correct the bias of the second moment",
        "xmlsgd/nn/optimizers/rmsprop.py",
        "hyper[SECOND_SCALE] = 1.0 / math.sqrt(1.0 - self.beta2**steps)",
        "hyper[SECOND_SCALE] = 1.0",
        ("tests/nn/test_optimizers.py",),
    ),
    Bug(
        "optimizers",
        "momentum keeps nothing of the last step",
        "xmlsgd/nn/optimizers/momentum.py",
        "return h[FIRST] * s + g, t",
        "return g, t",
        ("tests/nn/test_optimizers.py",),
    ),
    Bug(
        "optimizers",
        "RMSprop and Adam give the output layer the epsilon of the others",
        "xmlsgd/nn/optimizers/rmsprop.py",
        "._replace(output_epsilon=self.output_epsilon)",
        "",
        ("tests/nn/test_optimizers.py", "tests/nn/test_network.py"),
    ),
    # Schedules
    Bug(
        "schedules",
        "warm-up starts at the full learning rate",
        "xmlsgd/nn/schedules.py",
        "return progress / self.warm_up",
        "return 1.0",
        ("tests/nn/test_schedules.py",),
    ),
    Bug(
        "schedules",
        "the learning rate is that of the beginning of a batch",
        "xmlsgd/training/epoch.py",
        "given - rows / 2",
        "given - rows",
        ("tests/training/test_loop.py", "tests/training/test_history.py"),
    ),
    # Router
    Bug(
        "router",
        "rows that a worker gave back are lost",
        "xmlsgd/training/router.py",
        "self.returned = _joined([*self.returned, *spans])[::-1]",
        "self.returned = _joined(self.returned)[::-1]",
        ROUTER,
    ),
    Bug(
        "router",
        "committed rows are not counted",
        "xmlsgd/training/router.py",
        "self.committed += sum(",
        "self.committed = sum(",
        ROUTER,
    ),
    # Merging
    Bug(
        "merging",
        "the first replica is not weighted",
        "xmlsgd/training/merging.py",
        "total = np.float32(weights[w]) * replica",
        "total = replica.copy()",
        MERGING,
    ),
    Bug(
        "algorithms",
        "AdaSum halves with the wrong norm",
        "xmlsgd/algorithms/combiners.py",
        "b *= 1 - dot / (2 * bb)",
        "b *= 1 - dot / (2 * aa)",
        MERGING,
    ),
    Bug(
        "algorithms",
        "AdaSum adds without the overlap",
        "xmlsgd/algorithms/combiners.py",
        "a *= 1 - dot / (2 * aa)",
        "pass",
        MERGING,
    ),
    Bug(
        "algorithms",
        "elastic averaging pushes the center away",
        "xmlsgd/algorithms/easgd.py",
        "params.center += moved",
        "params.center -= moved",
        ("tests/algorithms/test_crossbow.py",),
    ),
    Bug(
        "algorithms",
        "Crossbow's corrections are in the next average again",
        "xmlsgd/algorithms/crossbow.py",
        "        total[:] = 0\n",
        "",
        ("tests/algorithms/test_crossbow.py",),
    ),
    Bug(
        "algorithms",
        "a learner takes a second correction before the average has moved",
        "xmlsgd/algorithms/crossbow.py",
        "sorted(self.learning - self.corrected)",
        "sorted(self.learning)",
        ("tests/algorithms/test_crossbow.py",),
    ),
    Bug(
        "algorithms",
        "Adaptive SGD grows the batches of slow workers",
        "xmlsgd/algorithms/adaptive.py",
        "(u / average) ** KAPPA",
        "(average / u) ** KAPPA",
        ("tests/algorithms/test_adaptive_sizes.py",),
    ),
    Bug(
        "algorithms",
        "Adaptive Hogbatch gives workers that are behind larger tasks",
        "xmlsgd/algorithms/adaptive_hogbatch.py",
        "self.size[w] / ALPHA",
        "self.size[w] * ALPHA",
        ("tests/algorithms/test_hogbatch.py",),
    ),
    Bug(
        "algorithms",
        "a share of a batch is lost in rounding",
        "xmlsgd/algorithms/omnivore_groups.py",
        "for w in order[: total - sum(shares.values())]:",
        "for w in order[:0]:",
        ("tests/algorithms/test_omnivore_split.py",),
    ),
    # Checkpoints and files
    Bug(
        "checkpoints",
        "a checkpoint of another run is overwritten",
        "xmlsgd/training/checkpoints/writer.py",
        "if read_identity(self.checkpoint.folder) not in (None, self._run):",
        "if False:",
        CHECKPOINT,
    ),
    Bug(
        "checkpoints",
        "a run goes on without its optimizer state",
        "xmlsgd/training/checkpoints/reader.py",
        "return Start(np.array(params), np.array(state), self.updates)",
        "return Start(np.array(params), np.zeros_like(state), self.updates)",
        CHECKPOINT,
    ),
    Bug(
        "checkpoints",
        "a checkpoint is written while the model diverges",
        "xmlsgd/training/checkpoints/writer.py",
        "and is_finite(learned.params)",
        "",
        CHECKPOINT,
    ),
    Bug(
        "file integrity",
        "checksums are not compared",
        "xmlsgd/data/files/manifest.py",
        "sha256_of(path / name) != sha256",
        "not sha256_of(path / name)",
        ("tests/estimators/saving/test_altered_models.py", "tests/estimators/saving/test_model_files.py"),
    ),
    Bug(
        "file integrity",
        "a manifest may name files of other folders",
        "xmlsgd/data/files/manifest.py",
        "if name != Path(name).name or",
        "if",
        ("tests/estimators/saving/test_altered_models.py", "tests/estimators/saving/test_model_files.py"),
    ),
    Bug(
        "file integrity",
        "a file is written under its final name, not renamed",
        "xmlsgd/data/files/atomic.py",
        "            whole.replace(path)\n",
        "            path.write_bytes(whole.read_bytes())\n",
        FILES,
    ),
    Bug(
        "data",
        "rows of a matrix keep their old pointers",
        "xmlsgd/data/csr.py",
        "return CSR(self.indptr[first : last + 1] - start,",
        "return CSR(self.indptr[first : last + 1] + 0,",
        ("tests/data/test_csr.py",),
    ),
    Bug(
        "data",
        "LIBSVM text loses the last label of a row",
        "xmlsgd/data/formats/libsvm.py",
        'b",".join(names[ends[row] : ends[row + 1]])',
        'b",".join(names[ends[row] : ends[row + 1] - 1])',
        ("tests/data/test_libsvm_write.py",),
    ),
    # Candidates
    Bug(
        "candidates",
        "frequent features weigh more than rare ones",
        "xmlsgd/candidates/weighting.py",
        "np.log((n_rows + 1) / (frequency + 1))",
        "np.log(frequency + 1)",
        ("tests/candidates",),
    ),
    Bug(
        "candidates",
        "the margins of linear classifiers are left out of the score",
        "xmlsgd/candidates/stacking.py",
        "neighbors * _log(votes, MIN_VOTE) + linear * margins + found",
        "neighbors * _log(votes, MIN_VOTE) + found",
        ("tests/candidates",),
    ),
    Bug(
        "candidates",
        "rows vote for themselves in training",
        "xmlsgd/candidates/knn.py",
        "N_NEIGHBORS, MAX_POSTINGS, budget, own,",
        "N_NEIGHBORS, MAX_POSTINGS, budget, -1,",
        ("tests/candidates",),
    ),
    Bug(
        "candidates",
        "labels that are candidates already are proposed again by co-occurrence",
        "xmlsgd/devices/cpu/kernels/cooccurrence.py",
        "            clean[listed[j]] = ZERO\n",
        "",
        ("tests/candidates",),
    ),
    Bug(
        "candidates",
        "all exclusions of a label add up",
        "xmlsgd/devices/cpu/kernels/exclusion.py",
        "fall = max(fall, chance[i] * np.float32(exclusion_table[known[i], column]))",
        "fall = min(fall + chance[i] * np.float32(exclusion_table[known[i], column]), np.float32(0.99))",
        ("tests/candidates/test_exclusion.py",),
    ),
    Bug(
        "candidates",
        "exclusions that do not help the best labels are kept",
        "xmlsgd/candidates/stacking_training.py",
        "if not (share * weight and _share_to_keep(of_best, MIN_Z_RANKED)):",
        "if not share * weight:",
        ("tests/candidates/test_exclusion.py",),
    ),
    # Metrics
    Bug(
        "metrics",
        "nDCG discounts from rank 0",
        "xmlsgd/metrics/ranking.py",
        "d = 1 / np.log2(ranks + 1)",
        "d = 1 / np.log2(ranks + 2)",
        METRICS,
    ),
    Bug(
        "metrics",
        "recall divides by k",
        "xmlsgd/metrics/ranking.py",
        "return cumulated_mean(compared.hits / compared.at_least_one)",
        "return cumulated_mean(compared.hits) / np.arange(1, k + 1)",
        METRICS,
    ),
    Bug(
        "metrics",
        "propensities take the wrong constant",
        "xmlsgd/metrics/propensity.py",
        "C = (np.log(n_rows) - 1) * (B + 1) ** A",
        "C = np.log(n_rows) * (B + 1) ** A",
        METRICS,
    ),
    # Estimator and command line
    Bug(
        "estimators",
        "weights of labels divide their gain",
        "xmlsgd/estimators/inference/rankings.py",
        "+ log_weight[likeliest]",
        "- log_weight[likeliest]",
        ("tests/estimators/inference/test_weighted_ranker.py",),
    ),
    Bug(
        "command line",
        "counts on the command line are not checked",
        "xmlsgd/cli/flags.py",
        "lambda count: count >= 1",
        "lambda count: count >= 0",
        ("tests/cli/test_cli_bad_input.py",),
    ),
    Bug(
        "command line",
        "a reader that has left counts as an error",
        "xmlsgd/cli/exit_codes.py",
        "            _discard_output()\n            return READER_LEFT\n",
        "            _discard_output()\n            return FAILED\n",
        ("tests/cli/test_cli_exit_codes.py",),
    ),
)
