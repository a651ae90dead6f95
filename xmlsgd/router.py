"""The router: cuts an epoch's row order into spans of the sizes asked for, each row once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Router:
    """Spans of [0, n_rows): `take` gives the next one, or None when the epoch is given out."""

    n_rows: int
    at: int = 0

    def take(self, size: int) -> tuple[int, int] | None:
        """Return (start, stop) of the next `size` rows, fewer at the end."""
        if self.at >= self.n_rows:
            return None
        start, self.at = self.at, min(self.at + size, self.n_rows)
        return start, self.at
