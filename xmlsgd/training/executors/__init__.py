"""Executors: serial, threads, processes, and simulated devices on a simulated clock."""
