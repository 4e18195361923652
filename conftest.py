"""What every suite shares: pytest's own test bed, and how Hypothesis draws."""

from __future__ import annotations

import os

from hypothesis import settings

pytest_plugins = ["pytester"]

# SciPy reads it when it is imported: with it, its functions take the arrays of other libraries as they are.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# No deadlines: a first call may compile. CI draws the same examples in every run, a laptop new ones.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
