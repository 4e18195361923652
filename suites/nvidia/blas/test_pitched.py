"""The kernel that copies columns to another distance apart: every word arrives, and nothing between columns changes."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_places import KINDS, Place

from cuassay import Device
from cuassay.testing import devices

pytest.importorskip("cupy", reason="CuPy is not installed")

from cuassay.devices.cuda.launch.launch import kernel

#: By the type that the kernel is compiled for, NumPy's, and how many of these make a word.
WORDS = {"short": ("int16", 1), "int": ("int32", 1), "long long": ("int64", 1), "int4": ("int32", 4)}

#: Words of a column: less than a block has threads, as many, and around what it copies in one turn.
LENGTHS = [1, 255, 256, 257, 768, 1023, 1024, 1025, 2500]


@devices(*KINDS)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("gaps", [(0, 3), (5, 0)], ids=["apart", "together"])
def test_every_word_of_every_column_arrives(device: Device, word: str, length: int, gaps: tuple[int, int]) -> None:
    place, columns = Place(device), 3
    dtype, each = WORDS[word]
    steps = [length + gap for gap in gaps]
    # The last column ends where its array does, so that an access behind it is seen.
    sizes = [((columns - 1) * step + length) * each for step in steps]
    host, given_back = (np.arange(1, size + 1).astype(dtype) for size in sizes)
    a, out = place(host), place(given_back)

    kernel("pitched.cu", f"copy_columns<{word}>")(columns, 256, (a, steps[0], out, steps[1], length))

    for column in range(columns):
        start, end = (step * column * each for step in steps)
        given_back[end : end + length * each] = host[start : start + length * each]
    np.testing.assert_array_equal(place.back(out), given_back)
