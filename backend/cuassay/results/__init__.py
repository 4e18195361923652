"""Storey 3: what testing and benchmarking share: result rows, parts of a run, fingerprints and child processes."""
