"""Files: read through what packed them, written so that they appear whole or not at all."""

from .atomic import check_not_within, parents_made, read_unreplaced, whole_file, whole_folder
from .checked import CHECKED, checked_states, note_checked, note_checked_again, state_of
from .faults import MACHINE_ERRORS, NO_ROOM
from .folders import CHECKPOINT, CURVE, HISTORY, MANIFEST, MODEL, REPORT, FolderKind
from .locks import lock_folder, make_locked, remove_locked
from .reading import BLOCK_BYTES, BROKEN_STREAM, MAGIC, PACKED_ENDS, open_packed, open_regular, open_text, sha256_of
from .scratch import naming, restore, scratch_beside, scratch_folder

__all__ = [
    "BLOCK_BYTES",
    "BROKEN_STREAM",
    "CHECKED",
    "CHECKPOINT",
    "CURVE",
    "HISTORY",
    "MACHINE_ERRORS",
    "MAGIC",
    "MANIFEST",
    "MODEL",
    "NO_ROOM",
    "PACKED_ENDS",
    "REPORT",
    "FolderKind",
    "check_not_within",
    "checked_states",
    "lock_folder",
    "make_locked",
    "naming",
    "note_checked",
    "note_checked_again",
    "open_packed",
    "open_regular",
    "open_text",
    "parents_made",
    "read_unreplaced",
    "remove_locked",
    "restore",
    "scratch_beside",
    "scratch_folder",
    "sha256_of",
    "state_of",
    "whole_file",
    "whole_folder",
]
