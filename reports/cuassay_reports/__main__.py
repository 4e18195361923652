"""``python -m cuassay_reports``: the report without the rest of cuassay."""

from __future__ import annotations

import sys

from cuassay_reports.command import main

if __name__ == "__main__":
    sys.exit(main())
