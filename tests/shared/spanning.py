"""Hogwild in long messages on the simulated clock.

There workers pull and push the model, for which Hogwild gives them an update a message; its spans are those of workers
that write in place.
"""

from __future__ import annotations

from xmlsgd.algorithms.hogwild import Hogwild


class Spanning(Hogwild):
    """Gives spans of `length` rows at most, by default those of Hogwild, as if workers wrote in place."""

    length = None

    def start(self, workers, n_rows):
        super().start(workers, n_rows)
        self.span = self.length or self.span

    def updates_per_span(self, w, rows_left, in_place):
        return super().updates_per_span(w, rows_left, in_place=True)
