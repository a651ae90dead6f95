"""What a GPU does with our kernels, beside what it could do: `python -m benchmarks.gpu`."""
