"""Arrays without memory: what they are, views of them, and what they refuse."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import cuassay
from cuassay import devices, ops
from cuassay.errors import ArgumentError, CapabilityError, DeviceError, DTypeError, MissingNameError, ShapeError

Make = Callable[..., Any]


def meta(shape: Any, dtype: Any = "float32") -> Any:
    return cuassay.empty(shape, dtype, "meta")


def facts(array: Any) -> Any:
    return array.shape, array.dtype, array.strides if array.size else None, array.flags.c_contiguous


VIEWS: dict[str, Callable[[Any], Any]] = {
    "T": lambda a: a.T,
    "mT": lambda a: a.mT,
    "transpose": lambda a: a.transpose(1, 0, 2),
    "swapaxes": lambda a: a.swapaxes(0, -1),
    "squeeze": lambda a: a[:1].squeeze(0),
    "reshape": lambda a: a.reshape(2, -1),
    "reshape that copies": lambda a: a.T.reshape(-1),
    "ravel": lambda a: a[0].ravel(),
    "integer": lambda a: a[1],
    "all integers": lambda a: a[1, 0, -1],
    "slices": lambda a: a[::-1, 1:, ::2],
    "new axis": lambda a: a[:, None, ..., 0],
    "iteration": lambda a: list(a)[1],
    "astype": lambda a: a.transpose(2, 0, 1).astype("float16"),
    "copy": lambda a: a.T.copy(),
    "copy.copy": lambda a: copy.copy(a[0]),
    "moveaxis": lambda a: np.moveaxis(a, 0, -1),
    "broadcast_to": lambda a: np.broadcast_to(a, (5, 2, 3, 4)),
    "expand_dims": lambda a: np.expand_dims(a, 1),
    "flip": lambda a: np.flip(a, 1),
    "zeros_like": lambda a: np.zeros_like(a.swapaxes(0, 1), dtype="int8"),
    "np.reshape": lambda a: np.reshape(a, (6, 4)),
    "np.reshape by name": lambda a: np.reshape(a, shape=(6, 4), order="C"),
    "np.reshape of a view": lambda a: np.reshape(a, (24,), copy=False),
    "np.reshape of a copy": lambda a: np.reshape(a[::-1], (6, 4), copy=True),
    "reshape by name": lambda a: a.reshape(6, 4, copy=None),
    "transpose by name": lambda a: np.transpose(a=a),
    "squeeze by name": lambda a: np.squeeze(a=a[:1], axis=0),
    "flip by name": lambda a: np.flip(axis=1, m=a),
    "zeros_like by name": lambda a: np.zeros_like(a=a),
    "full_like by name": lambda a: np.full_like(a=a, fill_value=3),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_and_copies_are_those_of_numpy(view: Make) -> None:
    assert facts(view(meta((2, 3, 4)))) == facts(view(np.zeros((2, 3, 4), np.float32)))


@pytest.mark.parametrize(
    "ask",
    [
        lambda a: np.shape(a=a),
        lambda a: np.ndim(a=a),
        lambda a: np.size(a=a, axis=1),
        lambda a: np.iscomplexobj(x=a),
        lambda a: np.can_cast(from_=a.dtype, to="float64"),
        lambda a: np.result_type(a, "float64"),
    ],
    ids=["shape", "ndim", "size", "iscomplexobj", "can_cast", "result_type"],
)
def test_facts_are_those_of_numpy(ask: Make) -> None:
    assert ask(meta((2, 3, 4))) == ask(np.zeros((2, 3, 4), np.float32))


@given(st.data())
def test_an_index_gives_what_numpy_gives(data: st.DataObject) -> None:
    host = np.empty(data.draw(arrays.array_shapes(max_dims=4)))
    index = data.draw(arrays.basic_indices(host.shape, allow_newaxis=True, allow_ellipsis=True))
    found = meta(host.shape, "float64")[index]

    assert facts(found) == facts(np.asarray(host[(*index, ...) if _needs_dots(index) else index]))


def _needs_dots(index: Any) -> bool:
    """Whether NumPy would give an element in place of a view."""
    return isinstance(index, tuple) and ... not in index


@pytest.mark.parametrize(
    "compute",
    [
        lambda a: a + 1,
        lambda a: 2.5 * a,
        lambda a: -a,
        lambda a: a < 3,
        lambda a: a @ a.mT,
        lambda a: np.exp(a),
        lambda a: np.divmod(a, 2)[1],
        lambda a: np.hypot(a, a[:1]),
    ],
)
@pytest.mark.parametrize("dtype", ["int8", "float32", "float16", "bfloat16"])
def test_operators_give_the_shape_and_dtype_that_numpy_gives(compute: Make, dtype: str) -> None:
    host = np.ones((3, 1, 4), getattr(ml_dtypes, dtype, None) or dtype)
    try:
        expected = compute(host)
    except TypeError as error:
        with pytest.raises(type(error)):
            compute(meta(host.shape, dtype))
    else:
        assert facts(compute(meta(host.shape, dtype)))[:2] == facts(expected)[:2]


def test_a_shape_larger_than_any_memory() -> None:
    a = meta((2**40, 2**12), "bfloat16")

    assert (a.nbytes, a.strides, ops.mm(a.T, a).shape) == (2**53, (2**13, 2), (2**12, 2**12))


@pytest.mark.parametrize("shape", [(2**62, 8), (2**70,), (1,) * 65], ids=["bytes", "extent", "axes"])
def test_a_shape_that_no_address_counts_is_refused(shape: Any) -> None:
    with pytest.raises(ShapeError, match="give"):
        meta(shape)


@pytest.mark.parametrize(
    ("read", "what"),
    [
        (cuassay.to_host, "to_host"),
        (float, "float"),
        (int, "int"),
        (complex, "complex"),
        (bool, "bool"),
        (np.asarray, "numpy.asarray"),
        (lambda a: a.get(), "get"),
        (lambda a: a.item(), "item"),
        (lambda a: a.tolist(), "tolist"),
        (lambda a: a.tobytes(), "tobytes"),
        (lambda a: f"{a:.3f}", "format"),
        (lambda a: 3 in a, "in"),
        (lambda a: [0][a.astype("int64")], "index"),
        (lambda a: ops.copy(a, device="cpu"), "to_host"),
        (lambda a: ops.copy(a, out=np.ones((), np.float32)), "to_host"),
    ],
)
def test_reading_a_value_is_refused_with_what_to_do(read: Make, what: str) -> None:
    with pytest.raises(CapabilityError, match=rf"{what} reads values, .* has none; got MetaArray.*; plan with shapes"):
        read(meta(()))


def test_an_index_that_is_a_mask_is_refused_as_its_values_decide_the_shape() -> None:
    a = meta((3, 4))

    with pytest.raises(CapabilityError, match=r"shape of .* depends on the mask's values.*use cuassay\.ops\.where"):
        a[a < 0]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda a: a[meta((2,), "int64")], ArgumentError, "use cuassay.ops.embedding or cuassay.ops.gather"),
        (lambda a: a[[0, 1]], ArgumentError, "is indexed by whole numbers"),
        (lambda a: a.reshape(5), ShapeError, "cannot give"),
        (lambda a: a.__setitem__(0, meta((5,))), ShapeError, "cannot be written to a place of shape"),
        (lambda a: a.fill(meta((2,))), ShapeError, "cannot be written"),
        (lambda a: np.reshape(a.T, (12,), copy=False), ArgumentError, r"needs a copy.*got copy=False; omit copy="),
        (lambda a: np.reshape(a, (12,), order="F"), MissingNameError, r"numpy.reshape is not offered with order="),
        (lambda a: a + meta((2,)), ShapeError, "do not broadcast"),
        (lambda a: a + np.ones(4, np.float32), ArgumentError, "is on the host"),
        (lambda a: np.add(a, 1, out=(meta((2, 4)),)), ShapeError, "cannot be written to an out"),
        (lambda a: np.add(a, 1, out=(meta((3, 4), "int8"),)), DTypeError, "cannot be written to an out of int8"),
        (lambda a: ops.add(a, np.ones(4, np.float32)), DeviceError, "a is on meta:0, b on cpu:0"),
        (lambda a: a.sum(), MissingNameError, "no 'sum'; kind meta has views.*cuassay.ops.sum"),
        (np.sum, MissingNameError, "numpy.sum is not offered"),
        (np.add.reduce, MissingNameError, "numpy.add.reduce is not offered"),
        (lambda a: devices.backend("meta").new_capture(0), CapabilityError, "no graphs: nothing runs"),
        (lambda a: cuassay.full(2, 300, "int8", "meta"), ArgumentError, "fill_value must be one number that int8"),
        (lambda a: cuassay.empty(2, "float32", "meta:1"), DeviceError, "meta:1 does not exist"),
        (lambda a: ops.add(a, a, out=a[::-1]), ArgumentError, "shares memory with a"),
        (lambda a: ops.add(a, a, out=meta((3, 5))), ShapeError, r"must have shape \(3, 4\)"),
        (lambda a: ops.mul(meta(3, "int32"), 2**70), ArgumentError, "too large for mul in int32"),
    ],
)
def test_misuse_is_refused_in_words(call: Make, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call(meta((3, 4)))


@pytest.mark.parametrize("value", ["x", 300, 1j, None, [1, "x"], np.array(["x"])], ids=repr)
def test_a_value_that_the_dtype_cannot_hold_raises_as_in_numpy(value: Any) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)) as expected:
        np.zeros((3, 2), np.int8)[0] = value
    with pytest.raises(expected.type, match=re.escape(str(expected.value))):
        meta((3, 2), "int8")[0] = value


@pytest.mark.parametrize("value", [3, 2.5, True, [1.0, 2.0], np.ones((2, 1, 2)), "3"], ids=repr)
def test_a_value_that_the_dtype_holds_is_taken(value: Any) -> None:
    a = meta((3, 1, 2))
    a[:2] = value

    assert facts(a) == facts(meta((3, 1, 2)))


def test_no_attribute_has_a_repr_that_reads_elements() -> None:
    a = meta((3, 4))[::2]
    broadcast = np.broadcast_to(a, (2, 2, 4))
    attributes = {name for one in type(a).__mro__ for name in getattr(one, "__slots__", ())} - {"__weakref__"}

    assert "header" not in attributes
    shown = [f(getattr(one, name)) for one in (a, broadcast) for name in attributes for f in (repr, str)]
    assert shown.count("Header(shape=(2, 4), strides=(32, 4), dtype=float32)") == 2
    assert shown.count("Header(shape=(2, 2, 4), strides=(0, 32, 4), dtype=float32)") == 2


def test_out_is_given_back() -> None:
    a, out = meta((3, 4)), meta((3, 4))

    assert ops.add(a, a, out=out) is out
    assert ops.add.inplace(a, 1.0) is a


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (slice(None), slice(None), "same"),
        (slice(0, 2), slice(1, 3), "partial"),
        (slice(0, 2), slice(2, 4), "none"),
        (slice(None, None, 2), slice(1, None, 2), "none"),
    ],
)
def test_views_overlap_as_those_of_numpy(first: slice, second: slice, expected: str) -> None:
    a = meta((4, 2))
    backend = devices.backend("meta")

    assert backend.overlap(a[first], a[second]) == expected
    assert backend.overlap(a[first], meta((4, 2))[second]) == "none"


def test_a_view_is_pickled_with_its_strides() -> None:
    a = meta((3, 4), "bfloat16").T

    restored, state = a.__reduce_ex__(2)

    assert facts(restored(*state)) == facts(a)


def test_its_repr_shows_no_numbers() -> None:
    a = meta((3,))

    assert str(a) == f"{a}" == "MetaArray(shape=(3,), dtype=float32, device='meta:0')"


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_of_the_host_gives_its_shape_and_order(order: Any) -> None:
    host = np.ones((2, 3, 4), np.int16, order=order).transpose(1, 0, 2)

    assert facts(cuassay.from_host(host, "meta")) == facts(host.copy(order="K"))


@pytest.mark.parametrize(
    "make",
    [
        lambda xp: xp.zeros((2, 3)),
        lambda xp: xp.full((2,), 3),
        lambda xp: xp.arange(10),
        lambda xp: xp.arange(1, 10, 2.5),
        lambda xp: xp.arange(3, dtype="int8"),
        lambda xp: xp.eye(3, 4, 1),
        lambda xp: xp.tri(3),
        lambda xp: xp.asarray([[1, 2]]),
        lambda xp: xp.exp(xp.ones(2, xp.float32)),
        lambda xp: xp.ones(3)[xp.newaxis],
    ],
)
def test_the_namespace_makes_what_numpy_makes(make: Make) -> None:
    assert facts(make(devices.namespace("meta"))) == facts(make(np))


@pytest.mark.parametrize("name", ["linalg", "concatenate_", "linspace"])
def test_the_namespace_refuses_other_names(name: str) -> None:
    xp = devices.namespace("meta")

    with pytest.raises(MissingNameError, match="call the op of cuassay"):
        getattr(xp, name)(0, 1)


def test_streams_and_events_hold_no_work() -> None:
    backend = devices.backend("meta")
    stream = backend.new_stream(0)

    with backend.use_stream(stream):
        assert backend.current_stream(0) is stream
    event = stream.record_event()
    stream.wait_event(event)
    stream.wait_stream(backend.current_stream(0))

    assert (stream.query(), event.query(), backend.current_stream(0) is stream) == (True, True, False)
    with pytest.raises(CapabilityError, match="no timing"):
        event.elapsed_time(event)
