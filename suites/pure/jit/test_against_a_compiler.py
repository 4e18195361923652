"""NumPy and a C++ compiler agree about what a body means."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pycparser", reason="pycparser is not installed")
if shutil.which("g++") is None:
    pytest.skip("g++ is not installed", allow_module_level=True)

from random_bodies import Drawn, compiled, computed, draw

from cuassay.jit.mathematics import FUNCTIONS

#: Units in the last place by which the libraries of C and of NumPy may be off together.
ULP = 2

#: Inputs by which no function overflows, and the functions for which they must lie elsewhere.
BETWEEN = {"acos": (-1, 1), "acosh": (1, 9), "asin": (-1, 1), "atanh": (-0.99, 0.99)}
POSITIVE = ("log", "log10", "log2", "sqrt", "rsqrt", "pow")


def test_random_bodies_give_the_bits_that_a_compiler_gives(tmp_path: Path) -> None:
    bodies = [draw(seed) for seed in range(150)]

    for seed, (one, wanted) in enumerate(zip(bodies, compiled(bodies, tmp_path), strict=True)):
        np.testing.assert_array_equal(computed(one), wanted, err_msg=f"seed {seed}\n{one.code}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_are_within_two_units_of_the_compilers(dtype: str, tmp_path: Path) -> None:
    others = ("rsqrt", "arg", "conj", "imag", "real")  # CUDA's, and those of <complex>
    names = [name for name in FUNCTIONS if not name.endswith("f") and name not in others]
    bodies = [call(name, dtype) for name in names]

    for one, wanted in zip(bodies, compiled(bodies, tmp_path), strict=True):
        np.testing.assert_array_max_ulp(computed(one), wanted, maxulp=ULP)


def call(name: str, dtype: str) -> Drawn:
    """A body that calls one function."""
    arguments = ", ".join(["x", "y", "x"][: FUNCTIONS[name].arguments])
    code = f"template <typename T> T drawn(T x, T y) {{ return std::{name}({arguments}); }}\n"
    chance = np.random.default_rng(3)
    low, high = (0.01, 9) if name in POSITIVE else BETWEEN.get(name, (-9, 9))
    first = chance.uniform(low, high, 257).astype(dtype)
    if name == "log1p":
        first = np.abs(first)
    return Drawn(code, dtype, (first, chance.uniform(-3, 3, 257).astype(dtype)))
