"""Ranges and marks: what a listening tool and watchers get of them, and what nobody gets."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cuassay import ops
from cuassay.core.watchers import Occurrence, watch
from cuassay.cuda import nvtx
from cuassay.devices.cuda import annotate
from cuassay.errors import ArgumentError


class Domain:
    """The domain of package nvtx, which notes what it gets; without a tool it has no attributes of a message."""

    def __init__(self, *, is_heard: bool) -> None:
        self.is_heard = is_heard
        self.calls: list[tuple[Any, ...]] = []
        self.named = self

    def get_event_attributes(self, message: str) -> str | None:
        return message if self.is_heard else None

    def start_range(self, attributes: str) -> int:
        self.calls.append(("start_range", attributes))
        return 7

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given: self.calls.append((name, *given))


def ask_again() -> None:
    for answer in (annotate.is_available, annotate.is_heard, annotate._domain, annotate._attributes):
        answer.cache_clear()
    nvtx._find_listeners(nvtx._Unasked())


@pytest.fixture
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Domain]:
    domain = Domain(is_heard=request.param)
    package = ModuleType("nvtx")
    domain.named = Domain(is_heard=request.param)
    package.__spec__ = ModuleSpec("nvtx", None)
    package.get_domain = lambda name=None: domain.named if name == "cuassay" else domain  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvtx", package)
    ask_again()
    yield domain
    monkeypatch.undo()
    ask_again()


def use_all() -> list[int]:
    """Use every kind of range and a mark; return the depths of nested ranges."""
    with nvtx.range("step {}", 3):
        depths = [nvtx.range_push("inner"), nvtx.range_pop()]
    nvtx.range_end(nvtx.range_start("anywhere"))
    nvtx.mark("end")
    return [*depths, nvtx.range_pop()]


@pytest.mark.parametrize("tool", [True], indirect=True)
def test_a_tool_gets_each_range_and_mark(tool: Domain) -> None:
    assert use_all() == [1, 1, -1]

    assert tool.calls == [
        ("push_range", "step 3"), ("push_range", "inner"), ("pop_range",), ("pop_range",),
        ("start_range", "anywhere"), ("end_range", 7), ("mark", "end"),
    ]  # fmt: skip


@pytest.mark.parametrize("tool", [False], indirect=True)
def test_a_package_without_a_tool_gets_nothing_and_depths_are_the_same(tool: Domain) -> None:
    assert use_all() == [1, 1, -1]
    assert use_all() == [1, 1, -1]

    assert tool.calls == []


@pytest.mark.parametrize("tool", [False, True], indirect=True, ids=["no-tool", "tool"])
def test_watchers_get_ranges_and_marks_with_or_without_a_tool(tool: Domain) -> None:
    found: list[Occurrence] = []
    nvtx.range_push("before")
    with watch(found.append):
        nvtx.range_pop()
        use_all()

    assert [(one.event, one.name) for one in found if one.event in ("range_begun", "marked")] == [
        ("range_begun", "step 3"), ("range_begun", "inner"), ("marked", "end"),
    ]  # fmt: skip
    begun, ended = ([one.subject for one in found if one.event == event] for event in ("range_begun", "range_ended"))
    assert ended[1:] == begun[::-1]
    assert ended[0] not in begun


def test_a_range_decorates_a_function_and_its_name_is_formatted_as_text_is() -> None:
    found: list[Occurrence] = []

    @nvtx.range("{{{self}}} {}", 2, self=1)
    def work() -> None:
        """Do nothing."""

    with watch(found.append, ("range_begun",)):
        work()
        work()

    assert [one.name for one in found] == ["{1} 2"] * 2
    with pytest.raises(IndexError):
        nvtx.range("{}")


# ------------------------------------------------------------------------------------------------ ops


@pytest.mark.parametrize("tool", [True], indirect=True)
def test_ops_are_ranges_of_their_own_domain_inside_the_block(tool: Domain) -> None:
    x = np.ones((3, 3), np.float32)
    ops.exp(x)
    with nvtx.mark_ops():
        ops.exp(x)
        ops.linear(x, x, x[0])  # calls matmul and add
        with pytest.raises(ArgumentError, match="axis"):
            ops.softmax(x, axis=7)
    ops.exp(x)

    pushed = [call for call in tool.named.calls if call[0] == "push_range"]
    assert [name for _, name in pushed] == ["exp", "linear", "softmax"]
    assert tool.named.calls.count(("pop_range",)) == 3
    assert tool.calls == []


@pytest.mark.parametrize("tool", [False], indirect=True)
def test_ops_without_a_tool_are_the_plain_calls(tool: Domain) -> None:
    x = np.ones(3, np.float32)
    with nvtx.mark_ops():
        np.testing.assert_array_equal(ops.add(x, x), [2, 2, 2])
    assert tool.named.calls == []
