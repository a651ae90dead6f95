"""Vector and matrix instructions that LLVM is told to use."""
