"""Operations of ours that lose the sign of zero: a generated check finds each, and passes either of two right ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay.arrays.dtypes import as_dtype
from cuassay.ops import registry
from cuassay.testing import OpSpec
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.signed_zeros import EITHER_ZERO
from cuassay.testing.own_specs import own_specs

Kernel = Callable[..., None]
SPECS = {spec.name: spec for spec in own_specs()}


def without_sign(kernel: Kernel) -> Kernel:
    """Zero is added at the end."""

    def run(*arrays: Any, out: Any, **scalars: Any) -> None:
        kernel(*arrays, out=out, **scalars)
        out[...] = out + out.dtype.type(0)

    return run


def by(formula: Callable[..., Any]) -> Callable[[Kernel], Kernel]:
    """Another formula in place of the kernel's."""

    def plant(_: Kernel) -> Kernel:
        def run(*arrays: Any, out: Any, **scalars: Any) -> None:
            with np.errstate(all="ignore"):
                out[...] = formula(*arrays)

        return run

    return plant


def exchanged(kernel: Kernel) -> Kernel:
    return lambda a, b, *, out: kernel(b, a, out=out)


LOST = {
    "abs of a comparison": ("abs", by(lambda a: np.where(a < 0, -a, a))),
    "neg from zero": ("neg", by(lambda a: 0 - a)),
    "sqrt of a magnitude": ("sqrt", by(lambda a: np.where(a == 0, 0, np.sqrt(a)))),
    "sub by adding": ("sub", by(lambda a, b: 0 - (b - a))),
    "div of magnitudes": ("div", by(lambda a, b: np.where(np.equal(a, 0) & np.not_equal(b, 0), 0, np.divide(a, b)))),
    "where by arithmetic": ("where", by(lambda c, a, b: np.asarray(a) * c + np.asarray(b) * ~c)),
    "maximum of negative zeros": ("maximum", by(lambda a, b: np.maximum(a, b) + 0)),
    "sin of a magnitude": ("sin", by(lambda a: np.where(a < 0, -np.sin(np.abs(a)), np.sin(np.abs(a))))),
    **{
        f"{name} with zero added": (name, without_sign)
        for name in ("add", "mul", "tanh", "gelu", "gelu_backward", "silu", "erf", "expm1", "log1p", "pow", "clamp")
    },
    **{f"{name} with zero added": (name, without_sign) for name in ("copy", "cast", "pad", "gather", "embedding")},
}


@pytest.mark.parametrize(("name", "plant"), LOST.values(), ids=[what.replace(" ", "-") for what in LOST])
@pytest.mark.parametrize("kind", ["cpu", "sim"])
def test_a_lost_sign_of_zero_is_found(name: str, plant: Callable[[Kernel], Kernel], kind: str) -> None:
    with (
        registry.substituted(name, kind="cpu", wrap=plant),
        pytest.raises(AssertionError, match=r"the sign of zero is wrong: .* zeros have the other sign") as caught,
    ):
        CHECKS["signed_zeros"](SPECS[name], kind, as_dtype("float32"))

    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert f"op: {name} on {kind}" in told
    assert "sample: " in told


def test_either_zero_of_two_is_their_maximum() -> None:
    for name in ("maximum", "minimum"):
        with registry.substituted(name, kind="cpu", wrap=exchanged):
            CHECKS["signed_zeros"](SPECS[name], "cpu", as_dtype("float32"))


def test_a_negative_zero_may_stay_one_in_relu() -> None:
    with registry.substituted("relu", kind="cpu", wrap=by(lambda a: np.where(a < 0, 0, a))):
        CHECKS["signed_zeros"](SPECS["relu"], "cpu", as_dtype("float32"))


def test_operations_that_give_either_zero_are_ours() -> None:
    assert EITHER_ZERO.keys() <= SPECS.keys()


def test_a_function_that_keeps_the_sign_of_zero_of_its_input_is_not_the_magnitude() -> None:
    right = OpSpec(fn=lambda xp, a: xp.abs(a), reference=np.abs)
    wrong = OpSpec(fn=lambda xp, a: xp.where(a < 0, -a, a), reference=np.abs)

    CHECKS["signed_zeros"](right, "sim:0", as_dtype("float32"))
    with pytest.raises(AssertionError, match="the sign of zero is lost"):
        CHECKS["signed_zeros"](wrong, "sim:0", as_dtype("float32"))
