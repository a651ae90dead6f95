"""The network and its parts: parameters, losses, optimizers, learning-rate schedules, samplers of labels."""
