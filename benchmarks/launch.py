"""Start a runner in its peer's environment with pinned threads, and read what it measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .environments import DEFAULT_ROOT, interpreter

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
)

# glibc may return buffers of the size of the logits to the kernel after a step and fault them in again at the next.
# PyTorch is given an allocator that keeps them, so that its figures are not those of page faults.
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),  # the largest that glibc accepts
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(512 << 20),
}
ENVIRONMENT = {"pytorch": ALLOCATOR}
OURS = ("ours", "network")  # runners of xmlsgd


class RunnerFailed(RuntimeError):
    """A runner ended with an error; the text carries the last lines that it wrote."""


@dataclass(frozen=True)
class Launcher:
    """Where the environments are and how runners are started."""

    envs: Path = DEFAULT_ROOT
    threads: int = 2
    timeout: float = 3600.0  # seconds a runner may take

    def python(self, peer: str) -> Path:
        """Return the interpreter of a peer; ours is the running one."""
        return Path(sys.executable) if peer in OURS else interpreter(self.envs, peer).absolute()

    def run(self, peer: str, folder: Path, out: Path, *options: str, module: str | None = None) -> Any:
        """Run `benchmarks.peers.PEER`, or `module`, on a folder or file; return the JSON that it wrote to `out`.

        Raises `RunnerFailed` when it ends with an error or takes longer than `timeout`.
        """
        command = [str(self.python(peer)), "-m", f"benchmarks.peers.{module or peer}", str(folder.absolute())]
        command += ["--out", str(out.absolute()), "--threads", str(self.threads), *options]
        variables = os.environ | dict.fromkeys(THREAD_VARIABLES, str(self.threads)) | ENVIRONMENT.get(peer, {})
        root = Path(__file__).resolve().parent.parent
        try:
            done = subprocess.run(
                command, cwd=root, env=variables, capture_output=True, text=True, timeout=self.timeout
            )
        except subprocess.TimeoutExpired as error:
            raise RunnerFailed(f"{peer}: stopped after {error.timeout:.0f} s") from None
        if done.returncode:
            tail = " | ".join(" ".join(line.split()) for line in (done.stderr or done.stdout).strip().splitlines()[-3:])
            raise RunnerFailed(f"{peer}: exit code {done.returncode}: {tail}")
        return json.loads(out.read_text())

    def run_ranked(
        self, peer: str, setting: str, folder: Path, work: Path, *options: str
    ) -> tuple[dict[str, Any], np.ndarray]:
        """Return the measurements of a peer at a setting and its ranking (n, 5) of the test rows."""
        out = work / f"{peer}-{setting}.json"
        result = self.run(peer, folder, out, "--setting", setting, *options)
        return {"peer": peer, **result}, np.load(out.with_suffix(".npy"))
