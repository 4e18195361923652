"""``python -m cuassay``: the ``cuassay`` command."""

from __future__ import annotations

import sys

from cuassay.cli import main

if __name__ == "__main__":
    sys.exit(main())
