"""The columns that every report of a test has for its case: device, op, check and dtype."""

from __future__ import annotations

from typing import Any

import pytest

from cuassay.testing import rerun, skips

__all__ = ["case_columns"]


def case_columns(item: pytest.Item) -> dict[str, Any]:
    """The columns of `item` in plain types; no device is used. A test without a device has at most a template."""
    case, template = skips.case_of(item), skips.template_of(item)
    told: dict[str, Any] = {} if template is None else {"template": template}
    if not case:
        return told
    told |= {"device": str(case["device"]), "target": rerun.target_of(item)}
    if "dtype" in case:
        told["dtype"] = case["dtype"].name
    if "op" in case:
        told |= {"op": case["op"].name, "check": skips.check_of(item)}
        if getattr(case["op"], "is_its_own_reference", False):
            told["own_reference"] = True
        from cuassay.testing.unasked import unasked_options

        if unasked := unasked_options(case["op"]):
            told["unasked_options"] = list(unasked)
    return told
