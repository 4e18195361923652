"""Tests generated from an OpSpec.

The checks are defined in `checks` and the modules it imports. ``pytest --pyargs cuassay.testing.generated`` runs them
for every op of this package. For an operation of your own, write ``test_norm = conformance(OpSpec(...))`` in a test
file.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from itertools import islice
from typing import Any

import pytest

from cuassay.errors import SpecError
from cuassay.testing.declared import FORMS, ModelSizes
from cuassay.testing.generated.checks import CHECKS, Check
from cuassay.testing.generated.input_sets import DrawnResults
from cuassay.testing.generated.measured import check_timed, prepared_sets
from cuassay.testing.marks import dtypes, exclusive, requires
from cuassay.testing.opspec import OpSpec

__all__ = ["Conformance", "conformance"]


class Conformance:
    """The generated tests of one spec.

    pytest collects them as a class with the name of the variable that holds this object. If the spec has `bench`, the
    class also has ``test_speed``, with one case for each sample. A case runs once unless benchmarks are measured.

    Parameters
    ----------
    spec : OpSpec
        The operation to test.
    declared_at : tuple of str and int, optional
        The file and the line that a skipped test names.
    """

    def __init__(self, spec: OpSpec, *, declared_at: tuple[str, int] | None = None) -> None:
        self.spec = spec
        chosen = {name: check for name, check in CHECKS.items() if check.applies(spec) and _has_dtypes(check, spec)}
        methods = {f"test_{name}": method(check) for name, check in chosen.items()}
        if spec.bench is not None:
            methods["test_speed"] = benchmark(spec)
        self.__cuassay_test_class__ = type(
            "Conformance", (), {"spec": spec, "cuassay_declared_at": declared_at, **methods}
        )

    def __repr__(self) -> str:
        return f"Conformance({self.spec.name})"


def _has_dtypes(check: Check, spec: OpSpec) -> bool:
    """Whether the check applies to at least one dtype of the spec."""
    return not check.dtypes or not {*check.dtypes}.isdisjoint(spec.dtypes)


def conformance(spec: OpSpec | None = None, **fields: object) -> Conformance:
    """Generate the tests of an operation.

    Assign the result to a module-level variable named ``test_...``, so that pytest collects it.

    Parameters
    ----------
    spec : OpSpec
        The operation to test.
    **fields : object
        Always rejected; accepted only so that the error can say that the fields belong in an `OpSpec`.

    Returns
    -------
    Conformance
        The object that pytest collects.

    Raises
    ------
    SpecError
        If the argument is not exactly one `OpSpec`; for example, if the fields of a spec are passed directly.
    """
    if isinstance(spec, OpSpec) and not fields:
        caller = sys._getframe(1)  # the statement that a warning and a skip have to name
        made = Conformance(spec, declared_at=(caller.f_code.co_filename, caller.f_lineno))
        if caller.f_code.co_name == "<module>":
            MADE.append((caller.f_code.co_filename, caller.f_lineno, spec.name, weakref.ref(made)))
        return made
    given = [*([] if spec is None else [repr(spec)]), *(f"{name}={value!r}" for name, value in fields.items())]
    raise SpecError(f"conformance takes an OpSpec; got {', '.join(given) or 'nothing'}; write {_FORM}")


_FORM = "conformance(OpSpec(fn=lambda xp, a: ...))"

#: The file, the line, the name of the spec and the result of each call of `conformance` at the top level of a module,
#: until pytest has collected the module: a result that is not assigned exists no more by then.
MADE: list[tuple[str, int, str, weakref.ref[Conformance]]] = []


def method(check: Check) -> Callable[..., None]:
    """Turn a check into a test method.

    Its arguments have names that no fixture of a user shadows (`cuassay.testing.parametrize.OWN_NAMES`).
    """

    def test(self: Any, cuassay_device: Any, cuassay_dtype: Any, cuassay_op: OpSpec) -> None:
        __tracebackhide__ = True
        check(cuassay_op, cuassay_device, cuassay_dtype)

    def test_once(self: Any, cuassay_device: Any, cuassay_op: OpSpec) -> None:
        __tracebackhide__ = True
        check(cuassay_op, cuassay_device)

    return marked(test if check.per_dtype else test_once, check)


def marked(test: Callable[..., None], check: Check, *marks: pytest.MarkDecorator) -> Callable[..., None]:
    """Give `test` the name, docstring, required capabilities, dtypes and exclusiveness of the check, and `marks`."""
    test.__name__, test.__doc__ = f"test_{check.name}", check.doc
    vars(test)["cuassay_check"] = check.name  # read by parametrization
    marks += (*([requires(*check.needs)] if check.needs else ()), *([dtypes(*check.dtypes)] if check.dtypes else ()))
    marks += (exclusive,) if check.is_alone else ()
    for mark in marks:
        test = mark(test)
    return test


def benchmark(spec: OpSpec) -> Callable[..., None]:
    """Make the test method that measures `spec`.

    A report identifies its rows by the name of the spec and the shapes of the sample. Samples of a function have
    several sets of inputs in turn, and some of their results are compared with the reference; see `InputSets`.

    Raises
    ------
    SpecError
        If `bench` raises, yields no sample, or yields two samples with the same label.
    """
    from cuassay.benchmarking.cases import case_labels, cases

    def test_speed(
        self: Any,
        cuassay_device: Any,
        cuassay_dtype: Any,
        cuassay_op: OpSpec,
        cuassay_sample: int,
        device_benchmark: Any,
    ) -> None:
        case = next(islice(cases(cuassay_op, cuassay_device, cuassay_dtype), cuassay_sample, None))
        columns = {"op": cuassay_op.name, "case": case.label, "dtype": case.dtype}
        sets = prepared_sets(cuassay_op, case, cuassay_sample) if device_benchmark.enabled else None
        kept = DrawnResults(case.run, 1 if sets is None else len(sets))
        timed = kept.run if cuassay_op.op is None else case.run
        before = None if sets is None else partial(sets.turn, kept)
        is_measured = device_benchmark(
            timed, cuassay_device, work=case.work, group=cuassay_op.name, before_sample=before, **columns
        )
        if is_measured and cuassay_op.op is None:
            check_timed(cuassay_op, case.device, cuassay_dtype, cuassay_sample, case, kept, sets)

    try:
        count = len(case_labels(spec, "cpu", spec.dtypes[0]))
    except SpecError:
        raise
    except Exception as error:
        raise SpecError(
            f"{spec.name} cannot be measured: its bench= raises {type(error).__name__}: {error}; bench= is called with "
            f"make and sizes ({', '.join(field.name for field in fields(ModelSizes))}): write bench={FORMS['bench']}"
        ) from error
    if not count:
        raise SpecError(f"{spec.name} cannot be measured: its bench yields nothing; yield a sample, or omit bench=")
    numbers = range(count) if count > 1 else [pytest.param(0, id=pytest.HIDDEN_PARAM)]
    measured: Callable[..., None] = pytest.mark.parametrize("cuassay_sample", numbers)(test_speed)
    return measured
