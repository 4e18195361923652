"""Storey 3, what testing and benchmarking both use: rows of results, parts of a run, fingerprints, child processes."""
