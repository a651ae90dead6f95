"""The peers: one virtual environment each, so that their pins never meet.

Versions are fixed; a peer that would not run otherwise has its dependencies bounded too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

DEFAULT_ROOT = Path(".benchmarks") / "envs"
TORCH = "torch==2.13.0"


@dataclass(frozen=True)
class Peer:
    """A peer: the requirement lists to install one after the other, and the statement that proves it works."""

    name: str
    steps: tuple[tuple[str, ...], ...]
    check: str


PEERS = {
    peer.name: peer
    for peer in (
        # torch goes first: libpecos asks for any torch, and pip would else look for the newest one.
        # transformers 5 and pandas 3 dropped what libpecos imports.
        Peer(
            "pecos", ((TORCH, "numpy<2"), ("libpecos==1.2.8", "transformers<5", "pandas<3")), "import pecos.xmc.xlinear"
        ),
        Peer("napkinxc", (("napkinxc==0.7.2",),), "import napkinxc.models, scipy.sparse"),
        Peer("omikuji", (("omikuji==0.5.2", "numpy", "scipy"),), "import omikuji, scipy.sparse"),
        # fastText 0.9.3 aborts with NaN on small data; this fork of 0.9.2 does not, but predict needs numpy 1.
        Peer("fasttext", (("fasttext-wheel==0.9.2", "numpy<2", "scipy<1.14"),), "import fasttext, scipy.sparse"),
        Peer("sklearn", (("scikit-learn==1.9.1",),), "import sklearn.multiclass, scipy.sparse"),
        Peer("pytorch", ((TORCH, "numpy", "scipy", "setuptools"),), "import torch, scipy.sparse"),
    )
}


def interpreter(root: Path, name: str) -> Path:
    """Return the path of the Python interpreter of a peer's environment under `root`."""
    folder = root / name
    return folder / "Scripts" / "python.exe" if os.name == "nt" else folder / "bin" / "python"


def works(root: Path, name: str) -> bool:
    """Return whether the environment of a peer exists and imports the peer."""
    python = interpreter(root, name)
    return python.exists() and subprocess.run([python, "-c", PEERS[name].check], capture_output=True).returncode == 0


def install(root: Path, name: str, torch_index: str | None = None) -> None:
    """Create the environment of a peer and install it there; do nothing where it works already.

    `torch_index` is passed to pip as `--index-url` for the step that installs torch: the index of the CPU wheels,
    where the default index serves the CUDA build. Raises `subprocess.CalledProcessError` when a step fails.
    """
    if works(root, name):
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", root / name], check=True)
    python = interpreter(root, name)
    for requirements in PEERS[name].steps:
        command: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if torch_index and TORCH in requirements:
            subprocess.run([*command, "--index-url", torch_index, TORCH], check=True)
        subprocess.run([*command, *requirements], check=True)
    subprocess.run([python, "-c", PEERS[name].check], check=True)


def install_all(root: Path, names: list[str], torch_index: str | None = None) -> list[str]:
    """Install the named peers; return the names of those that work, and print why another does not."""
    usable = []
    for name in names:
        try:
            install(root, name, torch_index)
            usable.append(name)
            print(f"{name}: ready", flush=True)
        except subprocess.CalledProcessError as error:
            print(f"{name}: left out, {' '.join(map(str, error.cmd))} ended with {error.returncode}", flush=True)
    return usable


def main() -> int:
    """Install peers from the command line; return 1 when one of them does not work."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.environments", description=__doc__)
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"default: all of {', '.join(PEERS)}")
    parser.add_argument("--envs", type=Path, default=DEFAULT_ROOT, help="folder of the environments (%(default)s)")
    parser.add_argument(
        "--torch-index", help="pip index of PyTorch's CPU wheels, where the default one has CUDA wheels"
    )
    args = parser.parse_args()
    unknown = sorted(set(args.peers) - set(PEERS))
    if unknown:
        parser.error(f"unknown peer {unknown[0]}; known are {', '.join(PEERS)}")
    names = args.peers or list(PEERS)
    return 0 if len(install_all(args.envs, names, args.torch_index)) == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
