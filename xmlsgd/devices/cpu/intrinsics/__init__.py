"""Functions that make LLVM emit certain vector and matrix instructions."""
