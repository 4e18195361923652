"""Every name that NumPy and CuPy share, on the simulated device: right and tracked, or refused with what to use."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from operator import setitem
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import shared_calls as calls
import shared_names as table

from cuassay.devices.sim import BACKEND, SimArray
from cuassay.errors import CapabilityError, RaceError

#: NumPy's own warnings, on the host and here alike: row_stack and fix go.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")

_CALLED = (calls.READS, calls.VIEWS, calls.WRITES, calls.MAKES, table.DRAWS)


def _params(*tables: Mapping[str, Any]) -> list[Any]:
    return [pytest.param(row, id=name) for one in tables for name, row in one.items() if table.is_here(name)]


@pytest.fixture
def xp() -> Iterator[Any]:
    with BACKEND.simulated(devices=2, memory=2**22):
        yield BACKEND.namespace(1)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


def _expected(row: table.Row) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return row(np, calls.operands(np))


def test_each_shared_name_is_in_one_table() -> None:
    rows = [name for one in (*_CALLED, calls.EMPTY, table.FACTS, table.REFUSED) for name in one if "-" not in name]

    assert sorted([*rows, *table.OURS]) == sorted(table.SHARED)


@pytest.mark.parametrize("row", _params(*_CALLED))
def test_result_is_numpys_and_on_the_device(xp: Any, row: table.Row) -> None:
    expected = _expected(row)

    result = row(xp, calls.operands(xp))

    assert type(result) is type(expected) or not isinstance(expected, tuple)
    for ours, theirs in zip(_leaves(result), _leaves(expected), strict=True):
        _assert_same(ours, theirs)


def _assert_same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, np.ndarray | np.generic) or isinstance(ours, SimArray):
        expected = np.asarray(theirs)
        assert (type(ours), str(ours.device), ours.dtype) == (SimArray, "sim:1", expected.dtype)
        assert ours.flags.f_contiguous >= expected.flags.f_contiguous
        assert ours.flags.c_contiguous >= expected.flags.c_contiguous
        np.testing.assert_array_equal(ours.get(), expected)
    else:
        assert ours == theirs


@pytest.mark.parametrize("row", _params(calls.EMPTY))
def test_uninitialised_array_has_numpys_shape_dtype_and_order(xp: Any, row: table.Row) -> None:
    result, expected = row(xp, calls.operands(xp)), row(np, calls.operands(np))

    assert (result.shape, result.dtype, result.strides) == (expected.shape, expected.dtype, expected.strides)
    assert str(result.device) == "sim:1"


@pytest.mark.parametrize("row", _params(table.FACTS))
def test_fact_is_numpys(xp: Any, row: table.Row) -> None:
    result, expected = row(xp, calls.operands(xp)), row(np, calls.operands(np))

    assert result == expected
    assert not isinstance(result, (np.ndarray, SimArray))


@pytest.mark.parametrize(("name", "instead"), [*table.REFUSED.items(), *table.CUPY_ONLY.items()])
def test_refusal_names_what_to_use(xp: Any, name: str, instead: str) -> None:
    module, _, last = name.rpartition(".")
    owner = getattr(xp, module) if module else xp

    with pytest.raises(CapabilityError, match=rf"xp\.{name} is not offered on sim:1: .*{instead}"):
        getattr(owner, last)
    assert not hasattr(owner, last)


def _unordered(access: str) -> tuple[Any, SimpleNamespace]:
    """A namespace and operands that another stream last read or wrote, which nobody waited for."""
    xp = BACKEND.namespace(1)
    operands = calls.operands(xp)
    BACKEND.synchronize(1)
    with BACKEND.use_stream(BACKEND.new_stream(1)):
        for one in vars(operands).values():
            one.sum() if access == "read" else setitem(one, ..., one)
    return xp, operands


@pytest.mark.usefixtures("xp")
@pytest.mark.parametrize("row", _params(calls.READS, calls.WRITES))
def test_call_sees_an_unordered_write_of_its_operands(row: table.Row) -> None:
    xp, operands = _unordered("write")

    with pytest.raises(RaceError, match="not ordered after the write by setitem"):
        row(xp, operands)


@pytest.mark.usefixtures("xp")
@pytest.mark.parametrize("row", _params(calls.WRITES))
def test_writing_call_sees_an_unordered_read(row: table.Row) -> None:
    xp, operands = _unordered("read")

    with pytest.raises(RaceError, match="not ordered after the read by sum"):
        row(xp, operands)


@pytest.mark.usefixtures("xp")
@pytest.mark.parametrize("row", _params(calls.READS))
def test_reading_call_runs_next_to_another_read(row: table.Row) -> None:
    xp, operands = _unordered("read")

    row(xp, operands)

    BACKEND.synchronize(1)


@pytest.mark.usefixtures("xp")
@pytest.mark.parametrize("row", _params(calls.VIEWS))
def test_view_is_made_without_a_read_and_read_later(row: table.Row) -> None:
    xp, operands = _unordered("write")

    view = row(xp, operands)

    with pytest.raises(RaceError, match="not ordered after the write by setitem"):
        view.copy()


@pytest.mark.usefixtures("xp")
@pytest.mark.parametrize("row", _params(calls.MAKES, calls.EMPTY, table.FACTS, table.DRAWS))
def test_call_that_looks_at_no_values_needs_no_order(row: table.Row) -> None:
    xp, operands = _unordered("write")

    row(xp, operands)

    BACKEND.synchronize(1)
