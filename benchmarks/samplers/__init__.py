"""Samplers that are no part of the package, hard negatives and SLIDE's LSH, and the comparison of all samplers."""
