"""Operations from a body: what torch's jiterator promises, on every device, and what every operation must hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("pycparser", reason="pycparser is not installed")

from cuassay import Device, cuda, devices, from_host, jit, to_host
from cuassay.cuda import jiterator
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.testing import OpSpec, conformance
from cuassay.testing.compare import assert_close

HEAD = "template <typename T> "

SCALED = jit.elementwise(HEAD + "T scaled_sum(T x, T y, T alpha) { return x + alpha * y; }", alpha=2.0)
STEPS = jit.elementwise(
    f"""{HEAD}T halved(T x) {{ return x / 2; }}
    {HEAD}T halvings(T x, T least) {{
      T many = 0;
      while (x >= least) {{
        x = halved(x);
        if (++many > 20) return -1;
      }}
      return many;
    }}""",
    least=1.0,
)
AFFINE = jit.elementwise(HEAD + "T affine(T x, T y, T alpha) { return x + alpha * y; }", alpha=1)

test_affine = conformance(
    OpSpec(
        op=AFFINE.op,
        reference=lambda x, y, alpha=1: np.add(x, y),
        magnitude=lambda x, y, alpha=1: np.abs(x) + np.abs(y),
        supports_grad=True,
    )
)


@pytest.fixture
def put(device: Device) -> Callable[..., Any]:
    """An array on the device."""
    return lambda values, dtype="float32": from_host(np.asarray(values, dtype), device)


DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint32", "float16", "bfloat16", "float32", "float64")


@pytest.mark.parametrize("name", DTYPES)
def test_inputs_of_each_dtype(device: Device, name: str) -> None:
    if not devices.capabilities(device).answer(f"elementwise:{name}"):
        pytest.skip(f"no elementwise operations in {name}")
    fn = jiterator._create_jit_fn(HEAD + "T weighted(T x, T y, T alpha) { return  -x + alpha * y; }", alpha=3)
    a, b = np.arange(12).astype(name), (np.arange(12) % 5).astype(name)

    found = to_host(fn(from_host(a, device), from_host(b, device)))

    assert found.dtype == a.dtype
    np.testing.assert_array_equal(found.astype(np.float64), to_host(fn(a, b)).astype(np.float64))


def test_arrays_of_two_dtypes_meet_in_the_promoted_one(put: Any) -> None:
    found = to_host(SCALED(put([1, 2], "int32"), put([0.5, 0.25], "float32")))

    assert found.dtype == np.float64
    assert found.tolist() == [2.0, 2.5]


def test_inputs_broadcast_and_may_be_strided(put: Any, device: Device) -> None:
    rows, column = put(np.arange(24).reshape(4, 6)), put(np.arange(4).reshape(4, 1))
    want = np.arange(24).reshape(4, 6) + 2.0 * np.arange(4).reshape(4, 1)

    np.testing.assert_array_equal(to_host(SCALED(rows, column)), want)
    if devices.capabilities(device).answer("views"):
        np.testing.assert_array_equal(to_host(SCALED(rows[::2, ::-1], column[::2])), want[::2, ::-1])


def test_scalars_have_defaults_and_may_be_given(put: Any) -> None:
    x = put([1.0, 2.0])

    assert to_host(SCALED(x, x)).tolist() == [3.0, 6.0]
    assert to_host(SCALED(x, x, alpha=-1)).tolist() == [0.0, 0.0]
    with pytest.raises(ArgumentError, match="beta"):
        SCALED(x, x, beta=1.0)


@pytest.mark.parametrize("is_train", [True, False])
def test_truth_values_as_scalars(put: Any, is_train: bool) -> None:
    fn = jit.elementwise(
        HEAD + "T dropped(T x, T mask, bool is_train) { return is_train ? x * mask : x; }", is_train=True
    )

    assert to_host(fn(put([3.0, 4.0]), put([0.0, 2.0]), is_train=is_train)).tolist() == ([0, 8] if is_train else [3, 4])


def test_two_texts_with_a_function_of_one_name(put: Any) -> None:
    first = jit.elementwise(HEAD + "T same_name(T x) { return x + 1; }")
    second = jit.elementwise(HEAD + "T same_name(T x) { return x + 2; }")

    assert (to_host(first(put([1.0]))), to_host(second(put([1.0])))) == ([2.0], [3.0])
    assert jit.elementwise(HEAD + "T same_name(T x) { return x + 1; }") is first


def test_one_text_with_two_defaults_of_a_scalar(put: Any) -> None:
    text = HEAD + "T moved(T x, T alpha) { return x + alpha; }"
    first, second = jit.elementwise(text, alpha=2.0), jit.elementwise(text, alpha=3.0)

    assert (to_host(first(put([1.0]))), to_host(second(put([1.0])))) == ([3.0], [4.0])


@pytest.mark.parametrize("inputs", range(1, 9))
def test_one_to_eight_inputs(put: Any, inputs: int) -> None:
    names = [f"x{i}" for i in range(inputs)]
    fn = jit.elementwise(
        f"{HEAD}T sum_of_{inputs}({', '.join(f'T {name}' for name in names)}) {{ return {' + '.join(names)}; }}"
    )

    assert to_host(fn(*(put([1.0, 10.0]) for _ in names))).tolist() == [inputs, 10 * inputs]


@pytest.mark.parametrize("outputs", range(1, 9))
def test_one_to_eight_outputs(put: Any, outputs: int) -> None:
    references = ", ".join(f"T& out{i}" for i in range(outputs))
    lines = " ".join(f"out{i} = x + {i};" for i in range(outputs))
    fn = jiterator._create_multi_output_jit_fn(f"{HEAD}void spread_{outputs}(T x, {references}) {{ {lines} }}", outputs)

    found = fn(put([1.0, 5.0]))

    assert [to_host(one).tolist() for one in (found if outputs > 1 else (found,))] == [
        [1 + i, 5 + i] for i in range(outputs)
    ]


def test_several_outputs_are_written_where_they_are_given(put: Any) -> None:
    fn = jit.elementwise(
        HEAD + "void sum_and_difference(T x, T y, T& sum, T& difference) { sum = x + y; difference = x - y; }"
    )
    x, y, outs = put([[3.0], [4.0]]), put([1.0, 2.0]), (put(np.zeros((2, 2))), put(np.zeros((2, 2))))

    assert fn(x, y, out=outs) is not None
    assert to_host(outs[0]).tolist() == [[4, 5], [5, 6]]
    assert to_host(outs[1]).tolist() == [[2, 1], [3, 2]]
    with pytest.raises(ShapeError, match=r"difference must have the arrays' broadcast shape \(2, 2\); got \(2,\)"):
        fn(x, y, out=(outs[0], put([0.0, 0.0])))
    with pytest.raises(ArgumentError, match="2 outputs; got 1 in out="):
        fn(x, y, out=outs[:1])


def test_a_loop_ends_for_each_element_by_itself(put: Any) -> None:
    assert to_host(STEPS(put([0.5, 1.0, 5.0, 1e9, np.inf, np.nan]))).tolist() == [0, 1, 3, -1, -1, 0]


def test_sixteen_bits_are_computed_in_float_and_rounded_once(put: Any, device: Device) -> None:
    fn = jit.elementwise(HEAD + "T there_and_back(T x, T y) { return x * y / y; }")
    x = np.asarray([300.0, 1.001], np.float16)

    assert_close(to_host(fn(put(x, "float16"), put([300.0, 3.0], "float16"))), x)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_functions_of_integers_are_computed_in_float64(put: Any, dtype: str) -> None:
    fn = jit.elementwise(
        HEAD + "T f(T x) { return 10 * std::sqrt(x) + pow(x, 2) + std::exp(2) * (std::floor(x) == x); }"
    )
    x = np.arange(7)

    found = to_host(fn(put(x, dtype)))

    assert found.tolist() == (10 * np.sqrt(x) + x**2 + np.exp(2)).astype(dtype).tolist()


def test_a_tail_of_packs_is_computed_for_its_own_elements_only(put: Any) -> None:
    fn = jit.elementwise(HEAD + "T doubled_beyond(T x) { while (x < 100) x *= 2; return x; }")  # of 0 it has no end

    assert to_host(fn(put(np.full(1031, 1.5)))).tolist() == [192.0] * 1031


def test_in_place_and_out(put: Any) -> None:
    x, y = put([1.0, 2.0, 3.0]), put([1.0, 1.0, 1.0])

    assert SCALED(x, y, out=x) is x
    assert SCALED.op.inplace(x, y) is x
    assert to_host(x).tolist() == [5.0, 6.0, 7.0]


def test_declarations_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"must be its last parameters; got x; its parameters are x, y"):
        jit.elementwise(HEAD + "T f(T x, T y) { return x; }", x=1.0)
    with pytest.raises(ArgumentError, match="alpha of f must be a number; got 'a'"):
        jit.elementwise(HEAD + "T f(T x, T alpha) { return x; }", alpha="a")
    with pytest.raises(ArgumentError, match="alpha of f must be finite; got inf"):
        jit.elementwise(HEAD + "T f(T x, T alpha) { return x; }", alpha=float("inf"))
    with pytest.raises(ArgumentError, match="f has 0 arrays; give 1 to 8"):
        jit.elementwise(HEAD + "T f(T alpha) { return alpha; }", alpha=1.0)
    with pytest.raises(ArgumentError, match="f has 9 arrays; give 1 to 8"):
        jit.elementwise(HEAD + f"T f({', '.join(f'T x{i}' for i in range(9))}) {{ return x0; }}")
    with pytest.raises(ArgumentError, match="writes 0 references; got num_outputs=2"):
        cuda.jiterator._create_multi_output_jit_fn(HEAD + "T f(T x) { return x; }", 2)


def test_calls_that_do_not_fit_are_refused(put: Any) -> None:
    fn = jit.elementwise(HEAD + "void quotient_and_rest(T x, T y, T& q, T& r) { q = x / y; r = x % y; }")
    x = put([7, 8], "int32")

    assert [to_host(one).tolist() for one in fn(x, put([2, 3], "int32"))] == [[3, 2], [1, 2]]
    with pytest.raises(ArgumentError, match=r"takes 2 arrays \(x, y\); got 1"):
        fn(x)
    with pytest.raises(ArgumentError, match="quotient_and_rest's y is not an array"):
        fn(x, 2)
    with pytest.raises(ArgumentError, match="too large"):
        SCALED(put([1], "int8"), 300)
    eight_bits = np.ones(2, ml_dtypes.float8_e4m3fn)
    with pytest.raises(DTypeError, match="not defined for float8_e4m3fn"):
        SCALED(eight_bits, eight_bits)
