"""Happens-before over any device: clocks, accesses by byte range. No driver, and no arrays' values."""
