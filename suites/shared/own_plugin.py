"""How a session that a test starts gets our plugin, whether cuassay is installed there or only on the path."""

from __future__ import annotations

from importlib.metadata import entry_points

NAME = "cuassay.testing.plugin"


def words() -> tuple[str, ...]:
    """Arguments of pytest: none where cuassay is installed, as pytest refuses a plugin that is loaded twice."""
    return () if entry_points(group="pytest11", name="cuassay") else ("-p", NAME)
