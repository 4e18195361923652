"""About 100 ways from NumPy to an array on the simulated device: each is tracked or refused, none is silent.

The array was last touched on another stream, and nothing waited for it. So a path that reads or writes it and is
tracked raises `RaceError`; one that is refused raises something else; one that returns has escaped.
"""

from __future__ import annotations

import copy
import ctypes
import io
import math
import operator
import pickle
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from cuassay.devices.sim import BACKEND
from cuassay.errors import CuassayError, RaceError

Path = Callable[[Any, Any], object]

READS: dict[str, Path] = {
    # ufuncs and their methods; `o` is another array on the device
    "ufunc": lambda x, o: np.exp(x),
    "ufunc-second": lambda x, o: np.add(o, x),
    "ufunc-scalar": lambda x, o: np.multiply(x, 2.0),
    "ufunc-out": lambda x, o: np.add(x, 1, out=o),
    "ufunc-two-outputs": lambda x, o: np.modf(x),
    "ufunc-where": lambda x, o: np.add(o, 1, out=o, where=x > 0),
    "reduce": lambda x, o: np.add.reduce(x),
    "accumulate": lambda x, o: np.add.accumulate(x, axis=1),
    "reduceat": lambda x, o: np.add.reduceat(x, [0, 2]),
    "outer": lambda x, o: np.multiply.outer(o, x),
    "at-value": lambda x, o: np.add.at(o, (0,), x[0]),
    "matmul": lambda x, o: o @ x,
    "reflected": lambda x, o: 1 - x,
    "compare": lambda x, o: x == o,
    "iadd-value": lambda x, o: operator.iadd(o, x),
    "divmod": lambda x, o: divmod(x, 2),
    "power": lambda x, o: x**2,
    "negative": lambda x, o: -x,
    "isfinite": lambda x, o: np.isfinite(x),
    # functions
    "sum": lambda x, o: np.sum(x),
    "mean": lambda x, o: np.mean(x, axis=0),
    "var": lambda x, o: np.var(x),
    "median": lambda x, o: np.median(x),
    "percentile": lambda x, o: np.percentile(x, 50),
    "argmax": lambda x, o: np.argmax(x),
    "cumsum": lambda x, o: np.cumsum(x),
    "concatenate": lambda x, o: np.concatenate([o, x]),
    "concatenate-out": lambda x, o: np.concatenate([x[:2], x[2:]], out=o),
    "stack": lambda x, o: np.stack((o, x)),
    "block": lambda x, o: np.block([[o, x]]),
    "where": lambda x, o: np.where(o > 0, x, o),
    "where-one": lambda x, o: np.where(x),
    "einsum": lambda x, o: np.einsum("ij,jk->ik", o, x),
    "dot": lambda x, o: np.dot(x, o),
    "tensordot": lambda x, o: np.tensordot(x, o),
    "inner": lambda x, o: np.inner(x, o),
    "vdot": lambda x, o: np.vdot(x, o),
    "kron": lambda x, o: np.kron(x, o),
    "sort": lambda x, o: np.sort(x),
    "argsort": lambda x, o: np.argsort(x),
    "unique": lambda x, o: np.unique(x),
    "nonzero": lambda x, o: np.nonzero(x),
    "searchsorted": lambda x, o: np.searchsorted(x[0], 1.5),
    "take": lambda x, o: np.take(x, [1, 0]),
    "take-out-named": lambda x, o: np.take(x, [0, 1, 2, 3], axis=0, out=o),
    "copyto-source": lambda x, o: np.copyto(o, x),
    "pad": lambda x, o: np.pad(x, 1),
    "roll": lambda x, o: np.roll(x, 1),
    "tile": lambda x, o: np.tile(x, 2),
    "repeat": lambda x, o: np.repeat(x, 2),
    "clip": lambda x, o: np.clip(x, 0, 1),
    "interp": lambda x, o: np.interp(x[0], [0, 1], [0, 1]),
    "histogram": lambda x, o: np.histogram(x, bins=[0, 1, 2]),
    "fft": lambda x, o: np.fft.fft(x),
    "norm": lambda x, o: np.linalg.norm(x),
    "inv": lambda x, o: np.linalg.inv(x),
    "svd": lambda x, o: np.linalg.svd(x),
    "solve": lambda x, o: np.linalg.solve(x, o),
    "allclose": lambda x, o: np.allclose(x, o),
    "array_equal": lambda x, o: np.array_equal(x, o),
    "triu": lambda x, o: np.triu(x),
    "trace": lambda x, o: np.trace(x),
    "diff": lambda x, o: np.diff(x),
    "nan_to_num": lambda x, o: np.nan_to_num(x),
    "array2string": lambda x, o: np.array2string(x),
    "np.copy": lambda x, o: np.copy(x),
    "ravel-of-transpose": lambda x, o: np.ravel(x.T),
    "apply_along_axis": lambda x, o: np.apply_along_axis(np.sum, 0, x),
    "apply_over_axes": lambda x, o: np.apply_over_axes(np.sum, x, [0]),
    "piecewise": lambda x, o: np.piecewise(x, [x > 0], [np.sum]),
    "sliding_window_view": lambda x, o: np.lib.stride_tricks.sliding_window_view(x, (2, 2)) + 1,
    # methods, through views too
    "method-sum": lambda x, o: x.sum(axis=1),
    "method-max-out": lambda x, o: x.max(axis=0, out=o[0]),
    "method-astype": lambda x, o: x.astype("float64"),
    "method-copy": lambda x, o: x.copy(),
    "method-flatten": lambda x, o: x.flatten(),
    "method-argsort": lambda x, o: x.argsort(),
    "method-round": lambda x, o: x.round(2),
    "method-dot": lambda x, o: x.dot(o),
    "view-transpose": lambda x, o: x.T + 1,
    "view-reshape": lambda x, o: x.reshape(-1) + 1,
    "view-dtype": lambda x, o: x.view("int32") + 1,
    "view-real": lambda x, o: x.real + 1,
    # indexing
    "index": lambda x, o: x[0, 0] + 1,
    "slice": lambda x, o: x[1:, ::2] + 1,
    "newaxis": lambda x, o: x[None, ..., 1] + 1,
    "fancy": lambda x, o: x[[0, 1]],
    "mask": lambda x, o: o[x > 0],
    "setitem-value": lambda x, o: operator.setitem(o, 0, x[0]),
    # to the host
    "get": lambda x, o: x.get(),
    "float": lambda x, o: float(x[0, 0]),
    "int": lambda x, o: int(x[0, 0]),
    "bool": lambda x, o: bool(x[0, 0]),
    "complex": lambda x, o: complex(x[0, 0]),
    "item": lambda x, o: x.item(0, 0),
    "tolist": lambda x, o: x.tolist(),
    "tobytes": lambda x, o: x.tobytes(),
    "str": lambda x, o: str(x),
    "format": lambda x, o: format(x[0, 0], ".2f"),
    "math": lambda x, o: math.sqrt(x[0, 0]),
    "builtin-sum": lambda x, o: sum(x),
    "builtin-round": lambda x, o: round(float(x[0, 0])),
    "iteration": lambda x, o: [row + 1 for row in x],
    "contains": lambda x, o: 1.0 in x,
    "copy.copy": lambda x, o: copy.copy(x),
    "copy.deepcopy": lambda x, o: copy.deepcopy(x),
}

WRITES: dict[str, Path] = {
    "out": lambda x, o: np.add(o, 1, out=x),
    "out-tuple": lambda x, o: np.modf(o, out=(x, o.copy())),
    "out-of-reduce": lambda x, o: np.add.reduce(o, axis=0, out=x[0]),
    "out-of-function": lambda x, o: np.sum(o, axis=0, out=x[0]),
    "out-of-method": lambda x, o: o.sum(axis=0, out=x[0]),
    "at": lambda x, o: np.add.at(x, (0,), 1.0),
    "iadd": lambda x, o: operator.iadd(x, 1),
    "imatmul": lambda x, o: operator.imatmul(x, o),
    "setitem": lambda x, o: operator.setitem(x, 0, 1.0),
    "setitem-fancy": lambda x, o: operator.setitem(x, [0, 1], o[:2]),
    "setitem-view": lambda x, o: operator.setitem(x.T, 0, 1.0),
    "copyto": lambda x, o: np.copyto(x, o),
    "put": lambda x, o: np.put(x, [0], 1.0),
    "put_along_axis": lambda x, o: np.put_along_axis(x, np.argmax(o, axis=1, keepdims=True), 1.0, axis=1),
    "place": lambda x, o: np.place(x, o > 0, [1.0]),
    "putmask": lambda x, o: np.putmask(x, o > 0, 1.0),
    "fill_diagonal": lambda x, o: np.fill_diagonal(x, 1.0),
    "nan_to_num-in-place": lambda x, o: np.nan_to_num(x, copy=False),
    "method-fill": lambda x, o: x.fill(1.0),
    "method-sort": lambda x, o: x.sort(),
    "method-put": lambda x, o: x.put([0], 1.0),
    "method-partition": lambda x, o: x.partition(1),
}

#: As `READS`, but the C code that asks for the number puts an error of its own in the place of ours.
READS_MASKED: dict[str, Path] = {
    "struct": lambda x, o: struct.pack("f", x[0, 0]),
    "fromiter": lambda x, o: np.fromiter(x[0], float),
}

REFUSED: dict[str, Path] = {
    "asarray": lambda x, o: np.asarray(x),
    "array": lambda x, o: np.array(x),
    "array-of-list": lambda x, o: np.array([x, x]),
    "array-of-scalars": lambda x, o: np.array([x[0, 0], x[0, 1]]),
    "asanyarray": lambda x, o: np.asanyarray(x),
    "ascontiguousarray": lambda x, o: np.ascontiguousarray(x),
    "frombuffer": lambda x, o: np.frombuffer(x),
    "from_dlpack": lambda x, o: np.from_dlpack(x),
    "memoryview": lambda x, o: memoryview(x),
    "bytearray": lambda x, o: bytearray(x),
    "ctypes": lambda x, o: x.ctypes,
    "ctypes-buffer": lambda x, o: (ctypes.c_char * 4).from_buffer(x),
    "data": lambda x, o: x.data,
    "base": lambda x, o: x.base,
    "flat": lambda x, o: x.flat,
    "array-interface": lambda x, o: x.__array_interface__,
    "array-struct": lambda x, o: x.__array_struct__,
    "dlpack": lambda x, o: x.__dlpack__(),
    "setflags": lambda x, o: x.setflags(write=False),
    "set-shape": lambda x, o: setattr(x, "shape", (16,)),
    "resize": lambda x, o: x.resize((2, 2)),
    "method-tofile": lambda x, o: x.tofile(io.BytesIO()),
    "method-dump": lambda x, o: x.dump(io.BytesIO()),
    "method-setfield": lambda x, o: x.setfield(1, "float32"),
    "method-byteswap": lambda x, o: x.byteswap(inplace=True),
    "pickle": lambda x, o: pickle.dumps(x),
    "hash": hash,
    "save": lambda x, o: np.save(io.BytesIO(), x),
    "savez": lambda x, o: np.savez(io.BytesIO(), x),
    "savetxt": lambda x, o: np.savetxt(io.StringIO(), x),
    "nditer": lambda x, o: list(np.nditer(x)),
    "ndenumerate": lambda x, o: list(np.ndenumerate(x)),
    "np.broadcast": lambda x, o: np.broadcast(x, o),
    "as_strided": lambda x, o: np.lib.stride_tricks.as_strided(x, (2,), (4,)),
    "vectorize": lambda x, o: np.vectorize(float)(x),
    "recarray": lambda x, o: np.rec.array(x),
    "masked": lambda x, o: np.ma.array(x),
    "choice": lambda x, o: np.random.default_rng(0).choice(x),
    "float32-of": lambda x, o: np.float32(x),
    "host-array-left": lambda x, o: np.ones((4, 4)) + x,
    "host-array-right": lambda x, o: x + np.ones((4, 4)),
    "host-array-out": lambda x, o: np.add(x, 1, out=np.ones((4, 4))),
    "host-array-iadd": lambda x, o: operator.iadd(np.ones((4, 4)), x),
    "host-array-setitem": lambda x, o: operator.setitem(np.ones((4, 4)), 0, x[0]),
    "host-array-concatenate": lambda x, o: np.concatenate([np.ones((4, 4)), x]),
    "positional-out": lambda x, o: np.sum(o, 0, None, x[0]),
    "positional-out-of-method": lambda x, o: o.sum(0, None, x[0]),
    "frompyfunc": lambda x, o: np.frompyfunc(float, 1, 1)(o),
}


@pytest.fixture
def unordered() -> Iterator[Callable[[str], tuple[Any, Any]]]:
    """Makes ``(x, o)``: `x` read or written on another stream that nobody waits for, `o` like it and clean."""
    with BACKEND.simulated(devices=1, memory=2**20) as backend:

        def make(access: str) -> tuple[Any, Any]:
            x, o = (backend.from_host(np.eye(4, dtype=np.float32) + 1, 0) for _ in range(2))
            backend.synchronize(0)
            with backend.use_stream(backend.new_stream(0)):
                x.fill(2.0) if access == "write" else x.sum()
            return x, o

        yield make


def _params(*tables: dict[str, Path]) -> list[Any]:
    return [pytest.param(path, id=name) for table in tables for name, path in table.items()]


@pytest.mark.parametrize("path", _params(READS, WRITES))
def test_a_path_that_touches_an_unordered_write_is_seen(unordered: Any, path: Path) -> None:
    x, o = unordered("write")

    with pytest.raises(RaceError, match="not ordered after the write by fill"):
        path(x, o)


@pytest.mark.parametrize("path", _params(READS_MASKED))
def test_a_path_whose_caller_masks_the_race_still_raises(unordered: Any, path: Path) -> None:
    x, o = unordered("write")

    with pytest.raises((RaceError, struct.error, TypeError, ValueError)):
        path(x, o)


@pytest.mark.parametrize("path", _params(WRITES))
def test_a_path_that_writes_under_an_unordered_read_is_seen(unordered: Any, path: Path) -> None:
    x, o = unordered("read")

    with pytest.raises(RaceError, match=r"write by .* not ordered after the read by sum"):
        path(x, o)


@pytest.mark.parametrize("path", _params(READS, READS_MASKED))
def test_a_path_that_only_reads_may_run_next_to_a_read(unordered: Any, path: Path) -> None:
    x, o = unordered("read")

    path(x, o)

    BACKEND.synchronize(0)


@pytest.mark.parametrize("path", _params(REFUSED))
def test_a_path_that_would_escape_is_refused(unordered: Any, path: Path) -> None:
    x, o = unordered("read")

    with pytest.raises((TypeError, AttributeError, ValueError, BufferError, CuassayError)) as caught:
        path(x, o)

    assert not isinstance(caught.value, RaceError)


def test_the_table_has_about_a_hundred_paths_and_more() -> None:
    assert len(READS) + len(WRITES) + len(REFUSED) >= 100
