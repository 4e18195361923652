"""Storey 4, measuring: timers, fingerprints, records of results."""
