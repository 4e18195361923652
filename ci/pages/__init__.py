"""Make the documentation site from pages, docstrings, tables in the code, and the ledger.

``python -m pages`` builds it. Each module here makes one kind of page, or checks one property of the result.
"""

from __future__ import annotations

__all__: list[str] = []
