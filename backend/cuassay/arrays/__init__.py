"""Storey 2: facts about arrays, on NumPy and ml_dtypes; no driver."""
