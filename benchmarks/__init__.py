"""Side-by-side benchmarks of xmlsgd and its peers; `python -m benchmarks --help`."""
