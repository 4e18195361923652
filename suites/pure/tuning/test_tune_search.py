"""The race among candidates: it switches on a real gain and not on noise, within its limits, whatever breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from cuassay.errors import ArgumentError
from cuassay.tune.search import CONFIRMATION, STAGES, Limits, Outcome, Stage, search
from cuassay.tune.space import Candidate, in_turn

DEFAULT = Candidate.of("library")


def kernel(number: int) -> Candidate:
    return Candidate.of("kernel", number=number)


class Machine:
    """A timer over a model of noise, as measured on dedicated GPUs: each sample, a slow drift, now and then a spike."""

    def __init__(self, times: dict[Candidate, float], noise: float, seed: int) -> None:
        self.times, self.noise = times, noise
        self.random = np.random.default_rng(seed)
        self.now = 0.0
        self.calls: list[Candidate] = []

    def __call__(self, candidate: Candidate) -> float:
        self.calls.append(candidate)
        drift = 1 + self.noise * (self.now / 0.5)
        spike = self.random.uniform(0.05, 0.3) if self.random.random() < 0.02 else 0.0
        sample = self.times[candidate] * drift * (1 + self.random.normal(0, self.noise) + spike)
        self.now += 1e-3
        return sample

    def clock(self) -> float:
        return self.now


def run(times: dict[Candidate, float], *, noise: float = 0.0, seed: int = 0, **more: object) -> Outcome:
    machine = Machine(times, noise, seed)
    others = [one for one in times if one != DEFAULT]
    return search(DEFAULT, others, machine, clock=machine.clock, **more)  # type: ignore[arg-type]


def hundred(time: Callable[[int], float]) -> dict[Candidate, float]:
    return {DEFAULT: 1.0} | {kernel(number): time(number) for number in range(100)}


# ------------------------------------------------------------------------------------------------ the rule


@pytest.mark.parametrize("noise", [0.002, 0.01, 0.03])
def test_noise_does_not_switch(noise: float) -> None:
    """A hundred equals of the default: the luckiest of them looks faster, and is not."""
    switched = [seed for seed in range(100) if run(hundred(lambda _: 1.0), noise=noise, seed=seed).choice != DEFAULT]

    assert switched == []


@pytest.mark.parametrize(("noise", "gain"), [(0.002, 0.03), (0.01, 0.08), (0.03, 0.25)])
def test_a_gain_beyond_the_noise_switches(noise: float, gain: float) -> None:
    times = hundred(lambda number: 1 / (1 + gain) if number == 71 else 1.0 + number / 100)

    found = [run(times, noise=noise, seed=seed).choice for seed in range(50)]

    assert found.count(kernel(71)) >= 48


def test_a_gain_below_two_per_cent_does_not_switch() -> None:
    outcome = run({DEFAULT: 1.0, kernel(1): 1 / 1.019})

    assert outcome.choice == DEFAULT
    assert "not above 2.0%" in outcome.reason
    assert (outcome.gain, outcome.default_s, outcome.chosen_s) == (0.0, 1.0, 1.0)


@pytest.mark.parametrize("time", [0.9, 0.8], ids=["half the spread", "one and a half"])
def test_a_gain_below_twice_the_spread_does_not_switch(time: float) -> None:
    times = iter([1.0] * 3 + [1.0, 0.9] * 200)

    outcome = search(DEFAULT, [kernel(1)], lambda one: next(times) if one == DEFAULT else time, clock=lambda: 0.0)

    assert outcome.choice == DEFAULT
    assert "spread" in outcome.reason


def test_a_rival_needs_no_more_than_the_noise() -> None:
    times = {DEFAULT: 1.0, kernel(1): 1 / 1.015, kernel(2): 1 / 1.018}

    assert run(times).choice == DEFAULT
    outcome = run(times, rivals=[kernel(1)])

    assert outcome.choice == kernel(1)
    assert outcome.gain == pytest.approx(0.015)
    assert run(times, rivals=[kernel(1)], noise=0.03).choice == DEFAULT


def test_a_gain_beyond_that_of_a_rival_needs_two_per_cent_over_the_default_alone() -> None:
    times = {DEFAULT: 1.0, kernel(1): 1 / 1.03, kernel(2): 1 / 1.04, kernel(3): 1 / 1.01}

    assert run(times, rivals=[kernel(1), kernel(3)]).choice == kernel(2)
    assert run(times, rivals=[kernel(1)], limits=Limits(gain=0.05)).choice == kernel(1)


def test_the_best_rival_is_in_the_last_race_though_others_were_faster() -> None:
    times = {DEFAULT: 1.0, **{kernel(number): 0.986 for number in range(40)}, kernel(99): 0.988}

    assert run(times, rivals=[kernel(99)]).choice == kernel(99)


def test_what_was_a_little_slower_may_win_the_last_race() -> None:
    early = iter([1.01] * 18)

    outcome = search(
        DEFAULT,
        [kernel(1)],
        lambda one: 1.0 if one == DEFAULT else next(early, 0.9),
        clock=lambda: 0.0,
    )

    assert outcome.choice == kernel(1)


def test_the_gain_is_told() -> None:
    outcome = run({DEFAULT: 1.0, kernel(1): 0.8, kernel(2): 0.5, kernel(3): 0.7})

    assert outcome.choice == kernel(2)
    assert (outcome.default_s, outcome.chosen_s, outcome.gain, outcome.spread) == (1.0, 0.5, pytest.approx(1.0), 0.0)
    assert (outcome.tried, outcome.untried, outcome.refused) == (4, 0, ())


def test_thresholds_are_the_callers() -> None:
    times = {DEFAULT: 1.0, kernel(1): 1 / 1.01}

    assert run(times, limits=Limits(gain=0.005)).choice == kernel(1)
    assert run(times, limits=Limits(gain=0.05)).choice == DEFAULT


# ------------------------------------------------------------------------------------------------ the race


def test_the_default_is_in_every_stage_and_losers_are_not() -> None:
    machine = Machine(hundred(lambda number: 1.0 + number / 10), 0.0, 0)

    search(DEFAULT, [kernel(number) for number in range(100)], machine, clock=machine.clock)

    assert machine.calls.count(kernel(99)) == 1
    assert machine.calls.count(DEFAULT) > 15


def test_a_stage_samples_in_turns_there_and_back() -> None:
    machine = Machine({DEFAULT: 1.0, kernel(1): 0.5, kernel(2): 0.6}, 0.0, 0)
    stage = Stage(samples=2, keep=2, within=2.0, share=1.0)

    search(DEFAULT, [kernel(1), kernel(2)], machine, stages=[stage], clock=machine.clock)

    assert machine.calls[1:7] == [DEFAULT, kernel(1), kernel(2), kernel(2), kernel(1), DEFAULT]


def test_no_more_go_on_than_a_stage_keeps() -> None:
    machine = Machine(hundred(lambda number: 1.0 - number / 1000), 0.0, 0)

    search(DEFAULT, list(machine.times)[1:], machine, limits=Limits(seconds=10.0), clock=machine.clock)

    sampled = [machine.calls.count(one) for one in machine.times if one != DEFAULT]
    for number, stage in enumerate(STAGES):
        assert sum(count > sum(one.samples for one in STAGES[: number + 1]) for count in sampled) <= stage.keep


def test_who_is_far_behind_the_best_is_out_even_if_before_the_default() -> None:
    machine = Machine({DEFAULT: 1.0, kernel(1): 0.1, kernel(2): 0.9}, 0.0, 0)

    search(DEFAULT, [kernel(1), kernel(2)], machine, clock=machine.clock)

    assert machine.calls.count(kernel(2)) == 1


def test_a_sample_that_was_disturbed_takes_none_out() -> None:
    disturbed = iter([5.0])

    def timer(candidate: Candidate) -> float:
        if candidate == kernel(1):
            return next(disturbed, 0.5)
        return 1.0 if candidate == DEFAULT else 0.6

    stage = Stage(samples=2, keep=2, within=2.0, share=1.0)
    outcome = search(DEFAULT, [kernel(1), kernel(2)], timer, stages=[stage], clock=lambda: 0.0)

    assert outcome.choice == kernel(1)


def test_the_last_comparison_is_in_turns() -> None:
    machine = Machine({DEFAULT: 1.0, kernel(1): 0.5, kernel(2): 0.6}, 0.0, 0)

    search(DEFAULT, [kernel(1), kernel(2)], machine, clock=machine.clock)

    last = machine.calls[-2 * CONFIRMATION :]
    assert last == [DEFAULT, kernel(1), kernel(1), DEFAULT] * (CONFIRMATION // 2)


def test_the_best_three_are_compared_again_on_fresh_samples_alone() -> None:
    """The first was the fastest of few samples by luck: in the last race the second is."""
    samples = {kernel(1): [0.5] * 18, kernel(2): [0.51] * 18, kernel(3): [0.515] * 18, kernel(4): [0.52] * 18}
    fresh = {kernel(1): 0.6, kernel(2): 0.53, kernel(3): 0.54, kernel(4): 0.1, DEFAULT: 1.0}
    calls: list[Candidate] = []

    def timer(candidate: Candidate) -> float:
        calls.append(candidate)
        former = samples.get(candidate)
        return former.pop() if former else fresh[candidate]

    outcome = search(DEFAULT, list(samples), timer, clock=lambda: 0.0)

    assert outcome.choice == kernel(2)
    assert (outcome.chosen_s, outcome.gain) == (0.53, pytest.approx(1 / 0.53 - 1))
    assert calls[-8:] == [DEFAULT, kernel(1), kernel(2), kernel(3), kernel(3), kernel(2), kernel(1), DEFAULT]


def test_a_gain_beyond_the_noise_goes_before_a_larger_one_within_it() -> None:
    noisy = iter([0.5] * 18 + [0.4, 0.8] * 100)
    times = {DEFAULT: 1.0, kernel(2): 0.52}

    outcome = search(
        DEFAULT,
        [kernel(1), kernel(2)],
        lambda one: next(noisy) if one == kernel(1) else times[one],
        clock=lambda: 0.0,
    )

    assert outcome.choice == kernel(2)


def test_what_is_near_the_best_takes_part_and_what_is_near_that() -> None:
    asked: list[list[Candidate]] = []
    times = {DEFAULT: 1.0, kernel(1): 0.9, kernel(2): 1.1, kernel(10): 0.5, kernel(100): 0.4}
    machine = Machine(times, 0.0, 0)

    def refine(best: Sequence[Candidate]) -> list[Candidate]:
        asked.append(list(best))
        numbers = [one["number"] for one in best if one != DEFAULT]
        return [kernel(10 * number) for number in numbers if kernel(10 * number) in times]

    outcome = search(DEFAULT, [kernel(1), kernel(2)], machine, refine=refine, clock=machine.clock)

    assert asked[0] == [kernel(1), DEFAULT, kernel(2)]
    assert asked[1][0] == kernel(10)
    assert outcome.choice == kernel(100)


def test_what_is_near_the_default_takes_part() -> None:
    machine = Machine({DEFAULT: 1.0, kernel(1): 0.5}, 0.0, 0)

    assert search(DEFAULT, [], machine, refine=lambda best: [kernel(1)], clock=machine.clock).choice == kernel(1)


def test_refining_ends_with_the_time() -> None:
    rounds: list[object] = []

    def refine(best: object) -> list[Candidate]:
        rounds.append(best)
        return [kernel(len(rounds))]

    machine = Machine({DEFAULT: 1.0} | {kernel(number): 1 / (1 + number) for number in range(1000)}, 0.0, 0)
    outcome = search(DEFAULT, [], machine, refine=refine, clock=machine.clock, limits=Limits(seconds=0.2))

    assert 20 < len(rounds) < 130
    assert outcome.seconds < 0.25


def test_a_candidate_given_twice_runs_once() -> None:
    machine = Machine({DEFAULT: 1.0, kernel(1): 3.0}, 0.0, 0)

    search(DEFAULT, [kernel(1), DEFAULT, kernel(1)], machine, clock=machine.clock)

    assert machine.calls.count(kernel(1)) == 1


def test_without_candidates_the_default_stays() -> None:
    outcome = run({DEFAULT: 1.0})

    assert (outcome.choice, outcome.tried, outcome.reason) == (DEFAULT, 1, "nothing else was faster")


# ------------------------------------------------------------------------------------------------ what goes wrong


def test_one_that_raises_is_out_with_its_reason() -> None:
    def timer(candidate: Candidate) -> float:
        if candidate == kernel(1):
            raise RuntimeError("no such kernel on this device")
        return 1.0 if candidate == DEFAULT else 0.5

    outcome = search(DEFAULT, [kernel(1), kernel(2)], timer, clock=lambda: 0.0)

    assert outcome.choice == kernel(2)
    assert outcome.refused == ((kernel(1), "RuntimeError: no such kernel on this device"),)
    assert (outcome.tried, outcome.untried) == (2, 0)


def test_one_that_is_out_is_not_asked_again() -> None:
    def timer(candidate: Candidate) -> float:
        if candidate == kernel(1):
            raise RuntimeError("no such kernel on this device")
        return 1.0

    outcome = search(DEFAULT, [kernel(1)], timer, refine=lambda best: [kernel(1), kernel(2)], clock=lambda: 0.0)

    assert [one for one, _ in outcome.refused] == [kernel(1)]
    assert (outcome.tried, outcome.untried) == (2, 0)


def test_one_that_fails_after_a_good_sample_leaves_the_race_to_the_next() -> None:
    served = iter([0.1, 0.1])

    def timer(candidate: Candidate) -> float:
        if candidate == kernel(1):
            return next(served)
        return 1.0 if candidate == DEFAULT else 0.15

    outcome = search(DEFAULT, [kernel(1), kernel(2)], timer, clock=lambda: 0.0)

    assert outcome.choice == kernel(2)
    assert dict(outcome.refused) == {kernel(1): "StopIteration: "}


def test_an_error_of_the_default_is_the_callers() -> None:
    def timer(candidate: Candidate) -> float:
        raise RuntimeError(f"{candidate} is lost")

    with pytest.raises(RuntimeError, match="library is lost"):
        search(DEFAULT, [kernel(1)], timer)


@pytest.mark.parametrize("how", ["tells", "raises"])
def test_a_wrong_result_never_wins(how: str) -> None:
    times = {DEFAULT: 1.0, kernel(1): 0.1, kernel(2): 0.15, kernel(3): 0.104}

    def check(candidate: Candidate) -> str | None:
        if candidate == kernel(1):
            if how == "raises":
                raise ValueError("0 for 1")
            return "0 for 1"
        return None

    outcome = run(times, check=check)

    assert outcome.choice == kernel(3)
    assert "0 for 1" in dict(outcome.refused)[kernel(1)]


def test_one_that_fails_in_the_last_comparison_is_out() -> None:
    count = 0

    def timer(candidate: Candidate) -> float:
        nonlocal count
        count += candidate != DEFAULT
        if count > 20:
            raise RuntimeError("lost")
        return 1.0 if candidate == DEFAULT else 0.5

    outcome = search(DEFAULT, [kernel(1)], timer, clock=lambda: 0.0)

    assert (outcome.choice, outcome.reason) == (DEFAULT, "RuntimeError: lost")


# ------------------------------------------------------------------------------------------------ limits


def test_the_time_is_kept_and_what_it_did_not_reach_is_told() -> None:
    machine = Machine(hundred(lambda number: 0.5 if number == 3 else 1.0), 0.0, 0)

    outcome = search(
        DEFAULT,
        [kernel(number) for number in range(100)],
        machine,
        limits=Limits(seconds=0.03),
        clock=machine.clock,
    )

    assert outcome.choice == kernel(3)
    assert outcome.tried + outcome.untried == 101
    assert outcome.untried > 50
    assert outcome.seconds < 0.03 + 0.02  # the fewest pairs of the last comparison


def test_a_stage_leaves_the_later_ones_their_time() -> None:
    machine = Machine(hundred(lambda number: 1.0 - number / 1000), 0.0, 0)

    outcome = search(DEFAULT, list(machine.times)[1:], machine, limits=Limits(seconds=0.1), clock=machine.clock)

    assert outcome.tried == pytest.approx(101 * STAGES[0].share, abs=3)


def test_iterations_of_a_candidate_are_limited() -> None:
    machine = Machine({DEFAULT: 1.0, kernel(1): 0.5}, 0.0, 0)

    search(DEFAULT, [kernel(1)], machine, limits=Limits(iterations=25), clock=machine.clock)

    assert max(machine.calls.count(one) for one in machine.times) == 25


@pytest.mark.parametrize("iterations", [1, 7, 20])
def test_few_iterations_leave_enough_for_the_last_comparison(iterations: int) -> None:
    """The default has had its samples by then: it takes part in every stage."""
    machine = Machine({DEFAULT: 1.0, kernel(1): 0.5}, 0.0, 0)

    outcome = search(DEFAULT, [kernel(1)], machine, limits=Limits(iterations=iterations), clock=machine.clock)

    assert outcome.choice == kernel(1)
    assert max(machine.calls.count(one) for one in machine.times) <= iterations + 5


@pytest.mark.parametrize("wrong", [{"seconds": 0}, {"iterations": 0}, {"gain": -1}, {"spreads": -1}])
def test_limits_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(ArgumentError, match="a search needs"):
        Limits(**wrong)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ candidates


def test_a_candidate_goes_through_plain_data() -> None:
    candidate = Candidate.of("kernel", split=4, name="x", fast=True, share=0.5, none=None)

    assert Candidate.from_plain(candidate.plain()) == candidate
    assert candidate["split"] == 4
    assert str(kernel(3)) == "kernel(number=3)"


def test_parameters_have_one_order() -> None:
    assert Candidate.of("kernel", tile=64, split=4) == Candidate.of("kernel", split=4, tile=64)
    assert Candidate.of("kernel", tile=64, split=4).parameters == (("split", 4), ("tile", 64))


def test_of_several_lists_the_first_of_each_come_first() -> None:
    one, two, three, four = map(kernel, range(4))

    assert in_turn([one, two, three], [], [four, one]) == (one, four, two, three)
    assert in_turn() == ()


def test_a_parameter_may_have_any_name() -> None:
    data = {"implementation": "x", "parameters": {"implementation": 1, "cls": 2}}

    assert Candidate.from_plain(data).plain() == data


def test_what_is_no_candidate_is_told() -> None:
    with pytest.raises(ArgumentError, match="must be a string, number, flag or None"):
        Candidate.of("kernel", where=[1])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="an implementation and parameters"):
        Candidate.from_plain({"name": "x"})
    with pytest.raises(ArgumentError, match="no parameter 'tile' here; it has number"):
        kernel(1)["tile"]
