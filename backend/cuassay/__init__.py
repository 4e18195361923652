"""Declare an operation once: it is tested, measured and reported on every device present.

Importing this touches no driver and no CUDA package; a kind of device loads at first use.
"""

from __future__ import annotations

from cuassay import ops
from cuassay.core.capability import Capabilities, parse_requirement
from cuassay.core.device import Device
from cuassay.core.precision import current_precision, precision, set_default_precision
from cuassay.devices import capabilities, empty, from_host, kinds, namespace, supported_dtypes, to_host

__all__ = [
    "Capabilities",
    "Device",
    "capabilities",
    "current_precision",
    "empty",
    "from_host",
    "kinds",
    "namespace",
    "ops",
    "parse_requirement",
    "precision",
    "set_default_precision",
    "supported_dtypes",
    "to_host",
]
