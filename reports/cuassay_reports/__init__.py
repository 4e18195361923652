"""Reading of result files: frames, comparisons, the support matrix and the report page.

The package reads files that ``cuassay`` wrote and never imports it. ``columns`` is the only schema of results and needs
only the standard library, so this module imports nothing.
"""

from __future__ import annotations

__all__: list[str] = []
