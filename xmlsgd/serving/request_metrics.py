"""Counts and latencies of requests, as Prometheus reads them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict

LATENCY_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
SHOWN_FROM_START = ("loads", "load_failures")  # as 0: an alert cannot see the rise of a counter that is new


class RequestMetrics:
    """Counts of what a server has answered, and how long it took, for Prometheus; not safe for several threads."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()  # of texts and calls of the model, by name of the counter
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(LATENCY_BOUNDS) + 1))
        self._sums: defaultdict[str, float] = defaultdict(float)

    def record(self, path: str, status: int, seconds: float) -> None:
        """Count a request; path : of its route, such as "/suggest", so that there are few different ones."""
        self._requests[path, status] += 1
        self._buckets[path][bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self._sums[path] += seconds

    def text(self) -> str:
        """Return all metrics in the text format of Prometheus."""
        lines = ["# TYPE xmlsgd_requests_total counter"]
        lines += [
            f'xmlsgd_requests_total{{path="{path}",status="{status}"}} {n}'
            for (path, status), n in sorted(self._requests.items())
        ]
        lines.append("# TYPE xmlsgd_request_seconds histogram")
        for path, buckets in sorted(self._buckets.items()):
            total = 0
            for bound, n in zip((*LATENCY_BOUNDS, "+Inf"), buckets, strict=True):
                total += n
                lines.append(f'xmlsgd_request_seconds_bucket{{path="{path}",le="{bound}"}} {total}')
            lines.append(f'xmlsgd_request_seconds_sum{{path="{path}"}} {self._sums[path]:.6f}')
            lines.append(f'xmlsgd_request_seconds_count{{path="{path}"}} {total}')
        for name in sorted({*SHOWN_FROM_START, *self.counts}):
            lines += [f"# TYPE xmlsgd_{name}_total counter", f"xmlsgd_{name}_total {self.counts[name]}"]
        return "\n".join(lines) + "\n"
