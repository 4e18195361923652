"""Happens-before for any device: vector clocks, and accesses by byte range. Needs no driver, and reads no values."""
