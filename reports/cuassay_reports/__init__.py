"""Reading of result files: frames, comparisons, support matrix and the report page.

Reads files that ``cuassay`` wrote and never imports it. ``columns`` is the one schema of a result
and needs only the standard library, which is why this module imports nothing by itself.
"""

from __future__ import annotations

__all__: list[str] = []
