"""Samplers of the output layer that brought nothing, and the comparison that says so."""
