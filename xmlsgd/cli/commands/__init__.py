"""The verbs of the command line, a file each: `add_arguments`, and `run`."""
