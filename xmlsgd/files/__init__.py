"""Files: read through what packed them, written so that they appear whole or not at all."""

from .checked import CHECKED, checked_states, note_checked, note_checked_again, state_of
from .locks import lock_folder, make_locked
from .reading import (
    BLOCK_BYTES,
    BROKEN_STREAM,
    DESCRIPTION,
    MAGIC,
    MANIFEST,
    PACKED_ENDS,
    is_model,
    open_packed,
    open_regular,
    sha256_of,
)
from .scratch import naming, scratch_beside, scratch_folder
from .whole import read_unreplaced, whole_file, whole_folder

__all__ = [
    "BLOCK_BYTES",
    "BROKEN_STREAM",
    "CHECKED",
    "DESCRIPTION",
    "MAGIC",
    "MANIFEST",
    "PACKED_ENDS",
    "checked_states",
    "is_model",
    "lock_folder",
    "make_locked",
    "naming",
    "note_checked",
    "note_checked_again",
    "open_packed",
    "open_regular",
    "read_unreplaced",
    "scratch_beside",
    "scratch_folder",
    "sha256_of",
    "state_of",
    "whole_file",
    "whole_folder",
]
