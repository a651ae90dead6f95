"""The commands, one module each: docstring and `EXAMPLES` are its help, `FLAGS` its flags, `run` what it does."""
