"""Which errors are spread over whole lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay.testing.generated.special import is_spread


def lines(*texts: str) -> Any:
    return np.array([[letter == "x" for letter in text] for text in texts])


@pytest.mark.parametrize(
    ("bad", "spread"),
    [
        pytest.param(lines("xxxxx", ".....", "....."), True, id="a row"),
        pytest.param(lines("x....", "x....", "x...."), True, id="a column"),
        pytest.param(lines("xxxx.", ".....", "....."), True, id="four of five"),
        pytest.param(lines("xxx..", ".....", "....."), False, id="three of five"),
        pytest.param(lines("xxxxx", "x....", "....."), False, id="a row and a number"),
        pytest.param(lines("xx", ".."), False, id="short rows"),
        pytest.param(lines("....."), False, id="nothing"),
        pytest.param(np.array(True), False, id="no axes"),
        pytest.param(lines("xxxxx", "xxxx.", "xxxxx"), True, id="all of it"),
    ],
)
def test_errors_over_whole_lines_are_spread(bad: Any, spread: bool) -> None:
    assert is_spread(bad, np.ones_like(bad)) is spread


def test_errors_are_spread_over_the_places_that_are_looked_at() -> None:
    bad, among = lines("xxx...", "......", "......"), lines("xxx...", "xxxxxx", "xxxxxx")

    assert is_spread(bad, among)
    assert not is_spread(bad, np.ones_like(bad))
    assert is_spread(bad, np.ones_like(bad), share=0.5)
