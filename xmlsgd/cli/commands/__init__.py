"""The commands, a module each: its docstring and `EXAMPLES` are the help, `FLAGS` its flags, `run` the function."""
