"""Storey 2: dtypes, layouts, rounding and random numbers, on NumPy and ml_dtypes; no driver."""
