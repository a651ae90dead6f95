"""Data sets: files in the usual formats, memory-mapped stores, and public, built-in and synthetic sets."""
