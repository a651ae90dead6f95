"""Training: the loop, the row router, workers and executors, merging, callbacks, checkpoints."""
