"""Checkpoints: the state of a run in a folder, from which the same run resumes after a kill or a power cut.

A checkpoint is written between two spans and takes its name when it is complete on the disk. With one worker of one
thread that writes the model itself (`Sequential`, `Hogwild`), a resumed run gives the same bits as an uninterrupted
one. Workers with replicas start again from the shared model. The state of a sampler, and what an algorithm has measured
of its workers (speeds, batch sizes, trials), start over.
"""

from .checkpoint import Checkpoint as Checkpoint
from .identity import checksum_of_rows as checksum_of_rows
from .reader import SavedRun as SavedRun
from .reader import read_checkpoint as read_checkpoint
from .writer import CheckpointWriter as CheckpointWriter
from .writer import reserved as reserved
