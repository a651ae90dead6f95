"""Loops over arrays, compiled by Numba: a file for each part of a step or a search."""
