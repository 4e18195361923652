"""Code that runs on NumPy gives the same numbers, dtypes and layouts on the simulated device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay.errors import MissingNameError

Code = Callable[[Any], Any]


def matrix(xp: Any, *shape: int) -> Any:
    return xp.asarray(np.arange(np.prod(shape), dtype="float32").reshape(shape) - 4)


def shuffled(xp: Any, *, by_name: bool) -> Any:
    x = xp.arange(20)
    source = xp.random.default_rng(5)
    source.shuffle(x=x) if by_name else source.shuffle(x)
    return x


RESULTS: dict[str, Code] = {
    "piecewise-else": lambda xp: xp.piecewise(matrix(xp, 3, 4), [matrix(xp, 3, 4) < 0], [-1, 2]),
    "piecewise-two": lambda xp: xp.piecewise(
        matrix(xp, 9), [matrix(xp, 9) < 0, matrix(xp, 9) > 2], [abs, lambda x: x * 10, 7]
    ),
    "pinv-tall": lambda xp: xp.linalg.pinv(matrix(xp, 4, 2)),
    "pinv-wide": lambda xp: xp.linalg.pinv(matrix(xp, 2, 4)),
    "shuffle": lambda xp: shuffled(xp, by_name=False),
    "shuffle-by-name": lambda xp: shuffled(xp, by_name=True),
    "full-like-dtype": lambda xp: xp.full_like(matrix(xp, 3), 2, dtype="int16"),
    "ones-like-transposed": lambda xp: xp.ones_like(matrix(xp, 3, 4).T),
    "transposed": lambda xp: matrix(xp, 3, 4).T,
    "integers-of-a-dtype": lambda xp: xp.random.default_rng(3).integers(0, 9, 6, dtype="int16"),
}


@pytest.mark.parametrize("code", RESULTS.values(), ids=RESULTS.keys())
def test_a_result_is_numpys(xp: Any, code: Code) -> None:
    expected, got = np.asarray(code(np)), code(xp).get()

    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert (got.flags.c_contiguous, got.flags.f_contiguous) == (
        expected.flags.c_contiguous,
        expected.flags.f_contiguous,
    )
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


WORDS: dict[str, Code] = {
    "format-number": lambda xp: f"{matrix(xp, 3).sum():.2f}",
    "format-array": lambda xp: f"{matrix(xp, 3)}",
    "fnc-of-one-axis": lambda xp: matrix(xp, 3).flags.fnc,
    "fnc-of-transposed": lambda xp: matrix(xp, 3, 4).T.flags.fnc,
    "fnc-of-a-gap": lambda xp: matrix(xp, 3, 4)[:, ::2].flags.fnc,
    "dtype-of-empty": lambda xp: str(xp.empty(3).dtype),
    "one-among-ones": lambda xp: 1 in xp.ones(3),
    "two-among-ones": lambda xp: 2 in xp.ones(3),
}


@pytest.mark.parametrize("code", WORDS.values(), ids=WORDS.keys())
def test_words_and_flags_are_numpys(xp: Any, code: Code) -> None:
    assert code(xp) == code(np)


@pytest.mark.parametrize(("dtype", "expected"), [(None, "float32"), ("int16", "int16")], ids=["kept", "named"])
def test_like_on_another_device_has_shape_and_dtype_and_does_not_copy(xp: Any, dtype: Any, expected: str) -> None:
    made = xp.ones_like(matrix(xp, 2, 3), device="sim:1", dtype=dtype)

    assert (str(made.device), made.shape, str(made.dtype)) == ("sim:1", (2, 3), expected)
    assert made.get().tolist() == [[1] * 3] * 2


def test_from_dlpack_copies_where_asked(xp: Any) -> None:
    x = matrix(xp, 3)

    copied = xp.from_dlpack(x, copy=True)
    copied[0] = 9

    assert (x.get()[0], copied.get()[0]) == (-4, 9)


@pytest.mark.parametrize("copy", [None, True], ids=["if-needed", "always"])
def test_asarray_copies_to_a_device_that_is_named(xp: Any, copy: bool | None) -> None:
    assert xp.asarray(matrix(xp, 3), device="sim:1", copy=copy).get().tolist() == [-4, -3, -2]


def test_asarray_without_a_copy_reaches_no_other_device(xp: Any) -> None:
    with pytest.raises(ValueError, match="must be copied to reach sim:1; got copy=False"):
        xp.asarray(matrix(xp, 3), device="sim:1", copy=False)


def test_a_consumers_stream_is_refused_by_dlpack(xp: Any) -> None:
    with pytest.raises(BufferError, match=r"takes no stream=; got 3"):
        matrix(xp, 3).__dlpack__(stream=3, dl_device=(1, 0))


def test_a_source_of_numbers_lists_what_it_draws(xp: Any) -> None:
    source = xp.random.default_rng(0)

    assert {"normal", "integers", "shuffle"} <= set(dir(source))
    assert not {"bit_generator", "spawn"} & set(dir(source))
    with pytest.raises(MissingNameError, match=r"random\.spawn is not offered on sim:0"):
        source.spawn(2)


def test_a_module_lists_only_names_that_it_gives(xp: Any) -> None:
    listed = [name for name in dir(xp.linalg) if not name.startswith("_")]

    assert "inv" in listed
    assert [name for name in listed if not hasattr(xp.linalg, name)] == []
