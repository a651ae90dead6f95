"""A GPU that is not there, for the host code as it is."""
