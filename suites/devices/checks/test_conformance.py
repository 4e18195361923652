"""The generated tests of our own ops, as part of our suites: see `cuassay.testing.generated`."""

from __future__ import annotations

from cuassay.testing.generated.test_conformance import *  # noqa: F403  the tests are these names
