"""Blocks without a cache: what compute-sanitizer is given."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from cuassay.devices.cuda.memory.direct import Direct
from cuassay.errors import ArgumentError
from cuassay.memory import IntegerSource


@pytest.mark.parametrize("nbytes", [-5, 2.5, "3", None], ids=str)
def test_a_size_that_is_none_is_refused_and_changes_nothing(nbytes: Any) -> None:
    source = IntegerSource()
    direct = Direct(source, lambda: nullcontext(True))

    with pytest.raises(ArgumentError, match="the size of a block is 0 or more bytes"):
        direct.malloc(nbytes)

    assert (direct.live, source.reserves) == (0, 0)


@pytest.mark.parametrize("may_release", [True, False])
def test_what_was_freed_goes_back_before_the_next_unless_work_is_captured(may_release: bool) -> None:
    source = IntegerSource()
    direct = Direct(source, lambda: nullcontext(may_release))
    direct.append(direct.malloc(1000))

    direct.malloc(24)

    assert direct.live == 24
    assert source.releases == may_release
