"""Signatures, forms and shape rules of declared operations; no device is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay import ops
from cuassay.errors import ArgumentError, DTypeError, SchemaError, ShapeError
from cuassay.ops import Meta
from cuassay.ops.schema import parse_signature
from cuassay.ops.shapes import broadcast

F32 = np.dtype(np.float32)


@pytest.mark.parametrize(
    "line",
    [
        "add(a, b) -> out",
        "softmax(a, *, axis=-1) -> out",
        "adam(params!: arrays, grads: arrays, *, lr, amsgrad=False) ->",
        "norm(a, *, shape=(1, 2), mode='x,y') -> out",
        "fill(a!, *, value) ->",
    ],
)
def test_a_signature_is_read_and_written_back(line: str) -> None:
    name, params, outputs = parse_signature(line)
    schema = _schema(name, params, outputs)

    assert schema.signature == line


def _schema(name: str, params: Any, outputs: Any) -> Any:
    from cuassay.ops import Schema

    return Schema(
        name=name, params=params, outputs=outputs, shape=lambda bound: (), dtypes=("float32",), op_class="storage"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("add a, b", "is not a signature"),
        ("f(a) -> x, x", "has 'x' twice"),
        ("f(a) -> x, a", "has 'a' twice"),
        ("f(a) -> x, class", "'class' in .* cannot name an output"),
        ("f(a) -> x, _y", "'_y' in .* cannot name an output"),
        ("f(a!) -> x, y", "writes a parameter and has several outputs"),
        ("f(a: tensor) -> out", "not an array parameter"),
        ("f(a, *, 1x=2) -> out", "not scalar parameters"),
        ("f(a, a) -> out", "'a' twice"),
        ("f(a, *, axis=oops) -> out", "a default is not a literal"),
        ("f(a, *, out=1) -> out", "named 'out'"),
    ],
)
def test_a_line_that_is_no_signature_is_refused(line: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse_signature(line)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1, 2, 3), {}, "takes 2 arrays by position, got 3"),
        ((1,), {}, "needs 'b'"),
        ((1, 2), {"b": 3}, "'b' twice"),
        ((1, 2), {"c": 3}, "no parameter 'c'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(args: tuple[int, ...], kwargs: dict[str, int], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ops.add.schema.bind(args, kwargs)


def test_defaults_are_filled_in() -> None:
    assert ops.sum.schema.bind((1,), {"axis": 0}) == {"a": 1, "axis": 0, "keepdims": False}


@pytest.mark.parametrize(
    ("op", "args", "kwargs", "expected"),
    [
        ("add", [((4, 1), "float32"), ((5,), "float16")], {}, ((4, 5), "float32")),
        ("add", [((4, 1), "int8"), 2.0], {}, ((4, 1), "float64")),
        ("sum", [((4, 5), "int8")], {}, ((), "int64")),
        ("sum", [((4, 5), "uint8")], {"axis": -1, "keepdims": True}, ((4, 1), "uint64")),
        ("amax", [((4, 0), "bfloat16")], {"axis": 0}, ((0,), "bfloat16")),
        ("amax", [((0, 0), "float32")], {"axis": 1}, ((0,), "float32")),
        ("matmul", [((2, 1, 3, 5), "float32"), ((4, 5, 2), "float32")], {}, ((2, 4, 3, 2), "float32")),
        ("matmul", [((5,), "float32"), ((5,), "complex64")], {}, ((), "complex64")),
        ("linear", [((7, 2, 5), "float32"), ((3, 5), "float32"), ((3,), "float32")], {}, ((7, 2, 3), "float32")),
        ("layer_norm", [((2, 5), "float16"), ((5,), "float32"), ((5,), "float32")], {}, ((2, 5), "float32")),
        ("copy", [((), "bool")], {}, ((), "bool")),
    ],
)
def test_meta_needs_no_memory(op: str, args: list[Any], kwargs: dict[str, Any], expected: tuple[Any, str]) -> None:
    meta = ops.op(op).meta(*args, **kwargs)

    assert (meta.shape, meta.dtype.name) == expected


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("count", [2, 3])
def test_meta_takes_any_number_of_pairs_in_a_list(count: int, kind: type) -> None:
    pairs = kind([((2, 3), "float32")] * count)

    assert ops.cat.meta(pairs, axis=0) == Meta((2 * count, 3), F32)


@pytest.mark.parametrize(
    ("op", "args", "kwargs"),
    [
        ("add", [((4,), "float32"), ((5,), "float32")], {}),
        ("softmax", [((4, 5), "float32")], {"axis": 2}),
        ("sum", [((4, 5), "float32")], {"axis": (0, -2)}),
        ("amax", [((4, 0), "float32")], {}),
        ("matmul", [((4, 5), "float32"), ((4, 5), "float32")], {}),
        ("layer_norm", [((4, 5), "float32"), ((4,), "float32"), ((5,), "float32")], {}),
        ("layer_norm", [((4, 5), "float32"), ((5,), "float32"), ((4,), "float32")], {}),
        ("linear", [((4, 5), "float32"), ((3, 4), "float32"), ((3,), "float32")], {}),
        ("linear", [((4, 5), "float32"), ((3, 5), "float32"), ((4,), "float32")], {}),
    ],
)
def test_shapes_that_do_not_fit_are_refused(op: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    with pytest.raises(ShapeError, match=r"\d"):
        ops.op(op).meta(*args, **kwargs)


@pytest.mark.parametrize("dtype", ["int32", "float8_e4m3fn"])
def test_a_cast_goes_between_floats_alone(dtype: str) -> None:
    with pytest.raises(DTypeError, match=f"cast goes between bfloat16, .*; got {dtype}"):
        ops.cast.meta(((2,), "float32"), dtype=dtype)


def test_a_scalar_without_a_default_must_be_given() -> None:
    with pytest.raises(ArgumentError, match="cast needs 'dtype'"):
        ops.cast(np.ones(2, np.float32))


@pytest.mark.parametrize(
    ("op", "dtype"), [("add", "bool"), ("relu", "uint8"), ("softmax", "int32"), ("matmul", "int8")]
)
def test_a_dtype_it_is_not_defined_for_is_refused(op: str, dtype: str) -> None:
    shapes = [((2, 2), dtype)] * len(ops.op(op).schema.arrays)

    with pytest.raises(DTypeError, match=f"{op} is not defined for {dtype}"):
        ops.op(op).meta(*shapes)


@given(st.lists(st.integers(0, 4), max_size=4), st.data())
def test_a_reduction_has_numpys_shape(shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.sampled_from([None, *range(-len(shape), len(shape))]))
    keepdims = data.draw(st.booleans())

    meta = ops.sum.meta(Meta(tuple(shape), F32), axis=axis, keepdims=keepdims)

    assert meta.shape == np.sum(np.zeros(shape), axis=axis, keepdims=keepdims).shape


@given(st.lists(st.sampled_from([1, 1, 2, 3]), max_size=3), st.lists(st.sampled_from([1, 2, 3]), max_size=3))
def test_broadcasting_has_numpys_shape(left: list[int], right: list[int]) -> None:
    try:
        expected = np.broadcast_shapes(tuple(left), tuple(right))
    except ValueError:
        with pytest.raises(ShapeError):
            ops.add.meta(Meta(tuple(left), F32), Meta(tuple(right), F32))
        return
    assert ops.add.meta(Meta(tuple(left), F32), Meta(tuple(right), F32)).shape == expected


def test_all_arguments_broadcast_together() -> None:
    assert broadcast({"a": Meta((4, 1), F32), "b": 2.0, "c": Meta((1, 5), F32), "d": Meta((2, 1, 1), F32)}) == (2, 4, 5)


def test_a_numpy_axis_is_an_axis() -> None:
    assert ops.sum.meta(((4, 5), "float32"), axis=np.int64(1)).shape == (4,)


def test_a_question_mark_says_that_an_array_may_be_missing() -> None:
    name, params, outputs = parse_signature("scale_(a!: arrays, b?: arrays, found!?, *, by=2) ->")

    assert (name, outputs) == ("scale_", ())
    assert [(p.name, p.form, p.access, p.required) for p in params] == [
        ("a", "arrays", "both", True),
        ("b", "arrays", "read", False),
        ("found", "array", "both", False),
        ("by", "scalar", "read", False),
    ]


@pytest.mark.parametrize(
    ("value", "names"), [(None, []), (2.5, []), ([Meta((1,), F32)] * 2, ["b[0]", "b[1]"]), (Meta((), F32), ["b"])]
)
def test_what_may_be_missing_has_no_arrays_when_it_is(value: object, names: list[str]) -> None:
    _, (_, param), _ = parse_signature("scale_(a!: arrays, b?: arrays) ->")

    assert [name for name, _ in param.members(value)] == names
