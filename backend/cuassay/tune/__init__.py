"""Search among implementations of one operation, without a device: candidates, a staged race, results on disk.

A device gives what it has: the candidates, a timer, a check. It gets back which candidate to use, and why.
"""

from __future__ import annotations
