"""Data sets: files of every form of the field, memory-mapped stores, public, built-in and synthetic sets."""
