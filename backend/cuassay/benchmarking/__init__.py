"""Storey 4: measuring. Timers, benchmark cases, comparisons, gates and records of results."""
