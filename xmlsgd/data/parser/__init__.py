"""The parser of LIBSVM text: blocks of whole lines, parsed by several threads in compiled code."""
