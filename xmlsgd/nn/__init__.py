"""The network and its parts: parameters, losses, optimizers, learning-rate schedules, and samplers of labels."""
