"""The papers' own experiments, on simulated devices; `python -m benchmarks.papers --help`."""
