"""What autocast does to each op: one table, after torch's lists for CUDA, and the entries of others.

Only float16, bfloat16 and float32 are ever cast: float64, integers, bool and complex stay as they are, as in torch.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from cuassay.core.words import shown
from cuassay.errors import ArgumentError
from cuassay.ops import registry

__all__ = ["Rule", "custom_rule", "rule_of"]


class Rule(Enum):
    """What becomes of an op's floating arrays under autocast."""

    #: To the region's dtype: products, whose accumulation is wide anyway.
    LOWER = "lower"
    #: To float32: what overflows, or adds up many small numbers.
    FLOAT32 = "float32"
    #: To the widest of them.
    WIDEST = "widest"
    #: The call raises: no dtype makes it right.
    REFUSED = "refused"


#: Ops that are not here run in the dtypes they get.
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
    # torch leaves these alone where the user gave a dtype; here they are computed in float32, and rounded to it.
    "cumsum": Rule.FLOAT32,
    "log_softmax": Rule.FLOAT32,
    "prod": Rule.FLOAT32,
    "softmax": Rule.FLOAT32,
    "sum": Rule.FLOAT32,
    "cat": Rule.WIDEST,
    "stack": Rule.WIDEST,
}


def rule_of(op: str) -> Rule | None:
    """The rule of the op of that name, or None: it runs in the dtypes it gets."""
    return _RULES.get(op)


def custom_rule(op: str, rule: Rule | str | None) -> Callable[[], None]:
    """Give an op of yours a rule, or one of ours another; None: no rule. Gives what undoes it.

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
