"""Checkpoints: what a run has learned so far, in a folder, from which the same run goes on after a kill or a power cut.

One is written between two steps, while nobody is in the middle of one, and takes its name when it is whole and on the
disk. With one worker a run that goes on does the same steps with the same numbers as one that was never cut short: with
one thread it ends with the same bits. Several workers begin again from the shared model, and what an algorithm has
found out about them (speeds, sizes of batches, trials), the hash tables of a sampler too, is made anew.
"""

from .checkpoint import Checkpoint
from .identity import checksum_of_rows
from .saved import Saved, TrainingPosition, read_saved
from .writer import Writer

__all__ = ["Checkpoint", "Saved", "TrainingPosition", "Writer", "checksum_of_rows", "read_saved"]
