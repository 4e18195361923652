"""Public lists of products: how many there are, how their operands lie, and in what order they are taken."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay.errors import ArgumentError
from cuassay.tune.shapes import DEEPBENCH_COUNT, GemmShape, evenly, read_shapes, spread_out

SHAPES = Path(__file__).parents[2] / "data" / "gemm_shapes.json"


def test_every_list_is_read() -> None:
    counts = {name: len(shapes) for name, shapes in read_shapes(SHAPES).items()}

    assert counts == {
        "deepseek_v3": 7 * (4 + 2) + 2 * 3,
        "llama3_8b": 75,
        "llama3_70b_tp1": 75,
        "llama3_405b_tp8": 28,
        "gpt2_124m_nanogpt": 5,
        "square": 15,
        "deepbench": DEEPBENCH_COUNT,
    }


def test_a_list_has_each_product_once() -> None:
    for shapes in read_shapes(SHAPES).values():
        assert len(set(shapes)) == len(shapes)


@pytest.mark.parametrize("first", [False, True], ids=["N", "T"])
@pytest.mark.parametrize("second", [False, True], ids=["N", "T"])
def test_a_column_major_product_is_that_of_the_transposes(tmp_path: Path, first: bool, second: bool) -> None:
    m, n, k = 2, 3, 5
    listed = {"deepbench": {"sets": {"training_set": [[m, n, k, first, second]]}}}
    (tmp_path / "shapes.json").write_text(json.dumps(listed))
    a, b = np.arange(10.0), np.arange(15.0)
    of_a = a.reshape((k, m) if first else (m, k), order="F")
    of_b = b.reshape((n, k) if second else (k, n), order="F")
    product = (of_a.T if first else of_a) @ (of_b.T if second else of_b)

    (shape,) = read_shapes(tmp_path / "shapes.json")["deepbench"]

    left, right = _operand(b, shape.m, shape.k, shape.layout[0]), _operand(a, shape.k, shape.n, shape.layout[1])
    np.testing.assert_array_equal((left @ right).ravel(), product.ravel(order="F"))


def _operand(values: np.ndarray, rows: int, columns: int, lies: str) -> np.ndarray:
    return values.reshape(rows, columns) if lies == "N" else values.reshape(columns, rows).T


def test_a_layer_has_its_forward_and_both_its_gradients(tmp_path: Path) -> None:
    data = {"nk_bf16_out": [[2, 3]], "nk_fp32_out": [[5, 7]], "m_forward": [11], "readme_2025_m": [13]}
    (tmp_path / "shapes.json").write_text(json.dumps({"deepseek_v3": data | {"m_backward": [17]}}))

    found = read_shapes(tmp_path / "shapes.json")["deepseek_v3"]

    assert [str(shape) for shape in found] == [
        "11x2x3 NT",
        "13x2x3 NT",
        "17x3x2 NN",
        "2x17x3 TN",
        "11x5x7 NT to float32",
    ]


def test_a_shape_says_how_its_operands_lie() -> None:
    assert str(GemmShape(m=1, n=256, k=7168, out_dtype="float32")) == "1x256x7168 NT to float32"


@pytest.mark.parametrize("text", ["", "[]", '{"square": 3}', '{"llama3_8b": {"m": [1]}}'])
def test_what_is_no_file_of_shapes_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "shapes.json").write_text(text)

    with pytest.raises(ArgumentError, match=r"shapes\.json gives no shapes"):
        read_shapes(tmp_path / "shapes.json")


@given(st.integers(0, 300), st.integers(1, 100))
def test_evenly_keeps_the_order_and_the_distance(length: int, count: int) -> None:
    chosen = evenly(range(length), count)

    assert len(chosen) == min(length, count)
    steps = np.diff(chosen)
    assert not len(steps) or (steps.min() > 0 and steps.max() - steps.min() <= 1)
    assert not chosen or (chosen[0] == 0 and length - chosen[-1] <= -(-length // count))


@given(st.integers(1, 300), st.integers(1, 300))
def test_any_beginning_is_spread_over_the_list(length: int, taken: int) -> None:
    order = spread_out(range(length))

    assert sorted(order) == list(range(length))
    beginning = sorted(order[:taken])
    gaps = np.diff([-1, *beginning, length])
    assert gaps.max() <= 3 * length / min(taken, length) + 1
