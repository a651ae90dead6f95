"""Numbers of an `OSError` that are the disk's or the machine's fault, not that of a name or of what a file holds."""

from __future__ import annotations

import errno

NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
MACHINE_ERRORS = NO_ROOM | {errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN}
