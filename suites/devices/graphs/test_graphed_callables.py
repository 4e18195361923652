"""`make_graphed_callables`: functions replayed on what they are given, on every kind that captures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arrays_read import values

from cuassay import Device, cuda, from_host, ops
from cuassay.errors import ArgumentError, CaptureError, DTypeError, ShapeError
from cuassay.testing import requires

pytestmark = [requires("graphs"), pytest.mark.usefixtures("warm_kernels")]


def test_a_graphed_function_is_called_on_what_it_is_given(full: Any) -> None:
    weight = full(3)
    graphed = cuda.make_graphed_callables(lambda a, b: ops.add(ops.mul(a, weight), b), (full(1), full(2)))

    assert values(graphed(full(2), full(5))) == [11.0] * 8
    assert values(graphed(full(4), full(0))) == [12.0] * 8


def test_a_static_input_is_not_copied(made: Any, full: Any) -> None:
    a = full(1)
    graphed = cuda.make_graphed_callables(lambda a: ops.add(a, 1.0), (a,))

    ops.copy(full(6), out=a)

    assert values(graphed(a)) == [7.0] * 8


def test_another_view_of_a_static_input_is_that_input(full: Any) -> None:
    a = full(1)
    graphed = cuda.make_graphed_callables(lambda a: ops.add(a, 1.0), (a,))
    ops.copy(full(6), out=a)

    assert values(graphed(a[:])) == [7.0] * 8
    assert values(graphed.replay((a.reshape(a.shape),))) == [7.0] * 8


def test_a_replay_on_other_inputs_reads_these_and_leaves_the_static_ones(full: Any) -> None:
    a, b = full(1), full(2)
    graphed = cuda.make_graphed_callables(lambda a, b: ops.mul(ops.add(a, b), b), (a, b))

    assert values(graphed.replay((full(3), full(4)))) == [28.0] * 8
    assert values(graphed.replay((full(3), b))) == [10.0] * 8 or graphed.repointable == (False, False)
    assert values(graphed.replay()) is not None
    assert values(graphed(full(1), full(1))) == [2.0] * 8


def test_a_gradient_that_is_also_read_elsewhere_is_the_one_of_the_replay(full: Any) -> None:
    """An optimizer's kernel finds its arrays through a table, where another address would not be seen."""
    param, mean, square, steps = full(1), full(0), full(0), full(0, 1)

    def work(grad: Any) -> Any:
        ops.fused_adam_([param], [grad], [mean], [square], [], [], steps, 0.0, beta1=0.0)
        return ops.add(grad, 1.0)

    graphed = cuda.make_graphed_callables(work, (full(2),))

    for grad in (3, 4):
        assert values(graphed.replay((full(grad),))) == [grad + 1] * 8
        assert values(mean) == [grad] * 8


def test_after_a_reset_other_inputs_are_refused_in_words(full: Any) -> None:
    graphed = cuda.make_graphed_callables(lambda a: ops.mul(a, 2.0), (full(1),))
    graphed.replay((full(3),))

    graphed.reset()

    with pytest.raises(CaptureError, match="nothing to replay"):
        graphed.replay((full(4),))


def test_inputs_are_those_given_also_after_the_graph_was_updated(made: Any, full: Any) -> None:
    static, mine, other = full(1), full(5), made(keep_graph=True)
    graphed = cuda.make_graphed_callables(lambda a: ops.mul(a, 2.0), (static,))
    first = values(graphed.replay((mine,)))
    with cuda.graph(other):
        ops.mul(static, 3.0, out=graphed.outputs)

    graphed.graph.update(other)

    assert first == [10.0] * 8
    assert values(graphed.replay((mine,))) == [15.0] * 8
    assert values(graphed.replay((full(6),))) == [18.0] * 8
    assert values(graphed(full(7))) == [21.0] * 8


def test_replays_follow_an_input_that_changes_in_place(full: Any) -> None:
    graphed = cuda.make_graphed_callables(lambda a: ops.mul(a, 2.0), (full(1),))
    if not all(graphed.repointable):
        pytest.skip(f"{graphed.graph.device}: its kind copies inputs")
    mine = full(3)

    first = values(graphed.replay((mine,)))
    ops.copy(full(5), out=mine)

    assert first == [6.0] * 8
    assert values(graphed.replay()) == [10.0] * 8


def test_an_array_next_to_a_nest_keeps_its_place(full: Any) -> None:
    graphed = cuda.make_graphed_callables(
        lambda a, pair: ops.add(ops.mul(a, pair[0]), pair[1]), (full(1), [full(2), full(3)])
    )

    assert values(graphed(full(4), [full(5), full(6)])) == [26.0] * 8
    assert values(graphed.replay((full(2), [full(3), full(4)]))) == [10.0] * 8


def test_nested_arguments_keep_their_form(full: Any) -> None:
    graphed = cuda.make_graphed_callables(
        lambda pair, named: {"sum": ops.add(pair[0], pair[1]), "last": [ops.mul(named["x"], 2.0)]},
        ([full(1), full(2)], {"x": full(3)}),
    )

    result = graphed([full(4), full(5)], {"x": full(6)})

    assert values(result["sum"]) == [9.0] * 8
    assert values(result["last"][0]) == [12.0] * 8
    with pytest.raises(ArgumentError, match="nested alike"):
        graphed([full(1)], {"x": full(1)})


def test_an_argument_unlike_the_captured_one_is_refused(device: Device, full: Any) -> None:
    graphed = cuda.make_graphed_callables(lambda a: ops.mul(a, 2.0), (full(1),))

    with pytest.raises(ShapeError, match=r"argument 0 was captured with shape \(8,\)"):
        graphed(full(1, 9))
    with pytest.raises(DTypeError, match="float32"):
        graphed(from_host(np.ones(8), device))
    with pytest.raises(ArgumentError, match="takes and gives arrays"):
        cuda.make_graphed_callables(lambda a: a, (3,))
    with pytest.raises(ArgumentError, match="sample_args is a tuple of arguments"):
        cuda.make_graphed_callables(lambda a: a, full(1))
    with pytest.raises(ArgumentError, match="needs a function, or several; got 3"):
        cuda.make_graphed_callables(3, (full(1),))  # type: ignore[call-overload]
    with pytest.raises(ArgumentError, match="captures into a CUDAGraph; got None"):
        cuda.graph(None)  # type: ignore[arg-type]


def test_several_functions_share_memory_and_keep_their_order(full: Any) -> None:
    sizes = (8, 1024, 64)
    graphed = cuda.make_graphed_callables(
        [lambda a, n=n: ops.add(ops.mul(a, float(n)), 1.0) for n in range(3)], [(full(1, size),) for size in sizes]
    )

    assert len({one.graph.pool() for one in graphed}) == 1
    for number, (one, size) in enumerate(zip(graphed, sizes, strict=True)):
        assert values(one(full(2, size))) == [2.0 * number + 1] * size


def test_an_input_changed_by_the_function_is_changed_in_its_place(full: Any) -> None:
    def step(state: Any, update: Any) -> Any:
        ops.add(state, update, out=state)
        return state

    state = full(0)
    graphed = cuda.make_graphed_callables(step, (state, full(1)), num_warmup_iters=0)

    graphed.replay((state, full(2)))
    graphed.replay((state, full(3)))

    assert values(state) == [5.0] * 8
    assert graphed.repointable[0] is False


def test_an_argument_given_twice_is_copied_not_pointed_at(full: Any) -> None:
    a = full(1)
    graphed = cuda.make_graphed_callables(lambda a, b: ops.add(a, b), (a, a[:]))

    assert graphed.repointable == (False, False)
