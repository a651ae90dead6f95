"""Whole runs, train and rank, of ours and the peers: made once, kept on disk, read by more than one table."""

from __future__ import annotations

import ast
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmlsgd import evaluate_ranking

from .launch import OURS, RunnerFailed
from .machine import git_commit
from .plan import Plan
from .report import without_folders

# Settings that the peers' own documents advise; see the runners. Quick ones first: what is cut off is cut off late.
DEFAULT_PEERS = (
    "ours", "fasttext:many-labels", "pytorch", "pytorch:compiled", "pecos", "pecos:man", "napkinxc", "omikuji",
    "sklearn",
)  # fmt: skip

RUNNERS = Path(__file__).parent / "peers"
NAMES: dict[str, str] = {"ours": "xmlsgd", "network": "xmlsgd's network alone"}

SEEDS = "P@1 by seed"

Run = dict[str, Any]  # what a runner wrote, with "measures"; or "peer", "setting" and "failure"


def whole_runs(prepared: Path, plan: Plan) -> list[Run]:
    """Return the run of every peer asked for, failed ones too; earlier ones where the plan reuses them.

    Of several seeds that which `mean_of_seeds` makes of them; seed after seed, so that all methods share the hours.
    """
    by_seed = [[_run(name, prepared, plan, seed) for name in plan.peers or DEFAULT_PEERS] for seed in range(plan.seeds)]
    return [mean_of_seeds(list(runs)) for runs in zip(*by_seed, strict=True)]


def mean_of_seeds(runs: list[Run]) -> Run:
    """Return one run: mean measures, medians of what it took; with several, `SEEDS` tells the P@1 of each."""
    if len(runs) == 1 or any("failure" in run for run in runs):
        return next((run for run in runs if "failure" in run), runs[0])
    measures = {name: statistics.fmean(run["measures"][name] for run in runs) for name in runs[0]["measures"]}
    took = {name: median([run[name] for run in runs]) for name in runs[0] if "_seconds" in name or "_bytes" in name}
    return {**runs[0], **took, "measures": measures, SEEDS: [run["measures"]["P@1"] for run in runs]}


def median(values: list[Any]) -> Any:
    """Return the median of numbers; of dictionaries of numbers, that of each key."""
    if isinstance(values[0], dict):
        return {key: median([each[key] for each in values]) for key in values[0]}
    return statistics.median(values)


def _run(name: str, prepared: Path, plan: Plan, seed: int) -> Run:
    """Return the run of PEER or PEER:SETTING."""
    peer, _, setting = name.partition(":")
    setting = setting or "default"
    work = plan.folder("runs", prepared)
    kept = work / f"{peer}-{setting}{f'-{seed}' if seed else ''}.run.json"
    asked = {**settings_of(peer).get(setting, {}), **(plan.parameters if peer in OURS else {})}
    wanted = {"threads": plan.threads, "parameters": asked}
    if plan.reuse and kept.exists():
        earlier: Run = json.loads(kept.read_text())
        if "failure" not in earlier and all(earlier.get(key) == value for key, value in wanted.items()):
            return earlier
    print(f"{name} ...", flush=True)
    options = [*(plan.given() if peer in OURS else []), "--random-state", str(seed)]
    run: Run = {"peer": peer, "setting": setting, **wanted, "commit": git_commit()}
    try:
        measured, ranking = plan.launcher.run_ranked(peer, setting, prepared, work, *options)
        run = {**measured, **run, "measures": measures(prepared, ranking)}
    except RunnerFailed as error:
        run["failure"] = without_folders(str(error))
    kept.write_text(json.dumps(run, indent=1))
    print(f"{name}: {summary(run)}", flush=True)
    return run


def settings_of(peer: str) -> dict[str, dict[str, Any]]:
    """Return the parameters of each setting of a peer, read from its runner's source: its package may be missing here.

    Raises `ValueError` for a runner whose `settings` are no literal.
    """
    source = (RUNNERS / f"{peer}.py").read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "settings" and node.value is not None:
            found: dict[str, dict[str, Any]] = ast.literal_eval(node.value)
            return found
    return {"default": {}}


def measures(prepared: Path, ranking: np.ndarray) -> dict[str, float]:
    """Return P, nDCG and PSP at 1, 3 and 5 in percent; propensities are those of the training labels."""
    Y, Y_test = (sp.csr_matrix(sp.load_npz(prepared / f"Y.{part}.npz")) for part in ("trn", "tst"))
    return evaluate_ranking(Y_test, ranking, Y_train=Y)


def title(run: Run) -> str:
    """Return the name of a run in a table."""
    name = NAMES.get(str(run["peer"]), str(run["peer"]))
    return name if run["setting"] == "default" else f"{name} ({run['setting']})"


def summary(run: Run) -> str:
    """Return a line for whoever waits."""
    if "failure" in run:
        return str(run["failure"])
    train, ranked = run["train_seconds"], run["predict_seconds"]
    return f"P@1 {run['measures']['P@1']:.2f}, trained in {train:.1f} s, ranked in {ranked:.2f} s"


def notes(runs: list[Run]) -> list[str]:
    """Return why runs are missing in a table, how far seeds are apart in what it tells, and commits if they differ."""
    missing = [f"Left out: {title(run)}: {run['failure']}" for run in runs if "failure" in run]
    apart = [f"{title(run)} {min(run[SEEDS]):.2f} to {max(run[SEEDS]):.2f}" for run in runs if SEEDS in run]
    seeds = [f"Means of several seeds, medians of costs; P@1 of {', '.join(apart)}."] if apart else []
    commits = sorted({str(run["commit"]) for run in runs if "failure" not in run and "commit" in run})
    return missing + seeds + ([f"Runs were made at the commits {', '.join(commits)}."] if len(commits) > 1 else [])
