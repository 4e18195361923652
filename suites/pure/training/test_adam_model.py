"""Adam against a shadow model: any order of steps, skips, changes, saves and loads, on lists that change or stay."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cuassay.optim import AdamW, load, save

SHAPES = ((3,), (2, 2), ())
HYPER = {"lr": 0.125, "betas": (0.5, 0.75), "eps": 1e-3, "weight_decay": 0.25}


class Shadow:
    """One parameter of AdamW, by the formula, in float64."""

    def __init__(self, value: np.ndarray[Any, Any]) -> None:
        self.p, self.m, self.v = value.astype(np.float64), 0.0, 0.0
        self.t = 0

    def step(self, g: Any, lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
        self.t += 1
        self.p = self.p * (1 - lr * weight_decay)
        self.m = betas[0] * self.m + (1 - betas[0]) * g
        self.v = betas[1] * self.v + (1 - betas[1]) * g * g
        corrected = np.sqrt(self.v / (1 - betas[1] ** self.t)) + eps
        self.p = self.p - lr * self.m / (1 - betas[0] ** self.t) / corrected


class AdamMachine(RuleBasedStateMachine):
    """The optimizer in float64 and its shadow."""

    @initialize(seed=st.integers(0, 9))
    def begin(self, seed: int) -> None:
        self.draws = np.random.default_rng(seed)
        self.params = self.arrays()
        self.shadows = [Shadow(param) for param in self.params]
        self.optimizer = AdamW(self.params, **HYPER)
        self.grads = self.arrays()
        self.hyper = dict(HYPER)

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        return [np.asarray(self.draws.standard_normal(shape)) for shape in SHAPES]

    def moved(self, grads: list[Any]) -> None:
        for shadow, grad in zip(self.shadows, grads, strict=True):
            shadow.step(np.array(grad), **self.hyper)

    @rule()
    def step_again(self) -> None:
        self.moved(self.grads)
        self.optimizer.step(self.grads)

    @rule(place=st.integers(0, len(SHAPES) - 1))
    def step_with_one_other_array(self, place: int) -> None:
        self.grads[place] = self.arrays()[place]
        self.step_again()

    @rule()
    def step_with_a_tuple(self) -> None:
        self.grads = self.arrays()
        self.moved(self.grads)
        self.optimizer.step(tuple(self.grads))

    @rule()
    def write_into_gradients(self) -> None:
        for grad in self.grads:
            grad[...] *= -0.5

    @rule()
    def skip(self) -> None:
        self.optimizer.step(self.grads, found_inf=np.ones((), np.float32))

    @rule(scale=st.sampled_from([0.5, 4.0]))
    def step_scaled_and_zeroed(self, scale: float) -> None:
        grads = self.arrays()
        self.moved([grad / scale for grad in grads])
        self.optimizer.step(grads, grad_scale=np.array(scale, np.float32), zero_grads=True)
        assert not any(np.any(grad) for grad in grads)

    @rule(lr=st.sampled_from([0.0, 0.0625, 0.5]), betas=st.sampled_from([(0.5, 0.75), (0.0, 0.5)]))
    def change(self, lr: float, betas: tuple[float, float]) -> None:
        self.hyper |= {"lr": lr, "betas": betas}
        self.optimizer.param_groups[0].update(self.hyper)

    @rule()
    def save_and_load_into_a_fresh_one(self) -> None:
        with TemporaryDirectory() as folder:
            save(self.optimizer, Path(folder) / "state.npz")
            self.optimizer = AdamW(self.params)
            load(self.optimizer, Path(folder) / "state.npz")

    @invariant()
    def parameters_and_states_are_the_shadows(self) -> None:
        state = self.optimizer.state_dict()["state"]
        for number, (param, shadow) in enumerate(zip(self.params, self.shadows, strict=True)):
            np.testing.assert_allclose(param, shadow.p, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(state[number]["exp_avg"], shadow.m + 0 * shadow.p, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(state[number]["exp_avg_sq"], shadow.v + 0 * shadow.p, rtol=1e-12, atol=1e-12)
            assert float(state[number]["step"]) == shadow.t


AdamMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestAdam = AdamMachine.TestCase
