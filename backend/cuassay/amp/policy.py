"""The autocast rule of each op: a table after torch's lists for CUDA, which users can extend.

Only float16, bfloat16 and float32 are cast. As in torch, float64, integers, bool and complex are never cast.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from cuassay.core.words import shown
from cuassay.errors import ArgumentError
from cuassay.ops import registry

__all__ = ["Rule", "custom_rule", "rule_of"]


class Rule(Enum):
    """What autocast does to the floating-point arrays of an op."""

    #: Cast to the region's dtype. For products, which accumulate in a wide type anyway.
    LOWER = "lower"
    #: Cast to float32. For ops that may overflow or that add many small numbers.
    FLOAT32 = "float32"
    #: Cast to the widest dtype among the arrays.
    WIDEST = "widest"
    #: Raise, because the op is not correct in any dtype.
    REFUSED = "refused"


#: Ops that are not in this table run in the dtypes of their arguments.
_RULES: dict[str, Rule] = {
    "addmm": Rule.LOWER,
    "baddbmm": Rule.LOWER,
    "bmm": Rule.LOWER,
    "linear": Rule.LOWER,
    "matmul": Rule.LOWER,
    "mm": Rule.LOWER,
    "slow_conv2d": Rule.LOWER,
    "exp": Rule.FLOAT32,
    "expm1": Rule.FLOAT32,
    "log": Rule.FLOAT32,
    "log1p": Rule.FLOAT32,
    "pow": Rule.FLOAT32,
    "reciprocal": Rule.FLOAT32,
    "rsqrt": Rule.FLOAT32,
    "layer_norm": Rule.FLOAT32,
    # torch does not cast these if the user passes a dtype. Here they are computed in float32 and rounded to that dtype.
    "cumsum": Rule.FLOAT32,
    "log_softmax": Rule.FLOAT32,
    "prod": Rule.FLOAT32,
    "softmax": Rule.FLOAT32,
    "sum": Rule.FLOAT32,
    "cat": Rule.WIDEST,
    "stack": Rule.WIDEST,
}


def rule_of(op: str) -> Rule | None:
    """Return the rule of the op with this name, or None if it runs in the dtypes of its arguments."""
    return _RULES.get(op)


def custom_rule(op: str, rule: Rule | str | None) -> Callable[[], None]:
    """Set the rule of an op.

    Parameters
    ----------
    op : str
        The name of a declared op.
    rule : Rule, str or None
        The rule or its value; None removes the rule.

    Returns
    -------
    callable
        Restores the former rule.

    Raises
    ------
    ArgumentError
        If no op has that name, or the rule is not a `Rule`.
    """
    named: object = op  # callers without a type checker pass anything
    if not isinstance(named, str) or named not in {known.name for known in registry.ops()}:
        raise ArgumentError(f"no op is named {shown(op)}; declare it with cuassay.ops.declare first")
    former = _RULES.get(op)
    _set(op, _read(rule))
    return lambda: _set(op, former)


def _read(rule: object) -> Rule | None:
    if rule is None or isinstance(rule, Rule):
        return rule
    found = next((one for one in Rule if isinstance(rule, str) and one.value == rule), None)
    if found is None:
        allowed = ", ".join(repr(one.value) for one in Rule)
        raise ArgumentError(f"{shown(rule)} is not a rule of autocast; give {allowed} or None")
    return found


def _set(op: str, rule: Rule | None) -> None:
    if rule is None:
        _RULES.pop(op, None)
    else:
        _RULES[op] = rule
