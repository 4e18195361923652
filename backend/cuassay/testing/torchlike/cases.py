"""A `TestCase` whose `assertEqual` compares arrays of every device kind as torch's does, and `run_tests`."""

from __future__ import annotations

import sys
import unittest
from typing import Any

import pytest

#: Dtype to (rtol, atol), as in torch.testing.assert_close; other dtypes are compared exactly.
TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    **dict.fromkeys(("float32", "complex64"), (1.3e-6, 1e-5)),
    **dict.fromkeys(("float64", "complex128"), (1e-7, 1e-7)),
}


class TestCase(unittest.TestCase):
    """`unittest.TestCase` for arrays.

    Attributes
    ----------
    precision, rel_tol : float
        The least absolute and relative tolerance of `assertEqual`; set by decorators such as `precisionOverride`.
    """

    precision: float = 0.0
    rel_tol: float = 0.0

    def assertEqual(self, x: Any, y: Any, msg: Any = None, **how: Any) -> None:  # type: ignore[override]
        """Compare arrays, numbers and containers of these with torch's tolerances, and other objects by ``==``.

        ``atol=``, ``rtol=``, ``exact_dtype=True`` and ``exact_device=False`` are those of torch.
        """
        __tracebackhide__ = True
        if isinstance(x, dict) and isinstance(y, dict):
            super().assertEqual(x.keys(), y.keys(), msg)
            x, y = [x[key] for key in x], [y[key] for key in x]
        if isinstance(x, list | tuple) and isinstance(y, list | tuple):
            super().assertEqual(len(x), len(y), msg)
            for one, other in zip(x, y, strict=True):
                self.assertEqual(one, other, msg, **how)
        elif any(hasattr(found, "dtype") or isinstance(found, float | complex) for found in (x, y)):
            self._compare(x, y, msg or "", **how)
        else:
            super().assertEqual(x, y, msg)

    def _compare(
        self, x: Any, y: Any, note: str, *, atol: Any = None, rtol: Any = None,
        exact_dtype: bool = True, exact_device: bool = False,
    ) -> None:  # fmt: skip
        __tracebackhide__ = True
        from cuassay.devices import to_host
        from cuassay.testing.compare import assert_close

        named = [str(found.dtype) for found in (x, y) if hasattr(found, "dtype")] or ["float64"]
        rtols, atols = zip(*(TOLERANCES.get(name, (0.0, 0.0)) for name in named), strict=True)
        assert_close(
            x,
            y if exact_device or not hasattr(y, "dtype") else to_host(y),
            atol=max(*atols, self.precision) if atol is None else atol,
            rtol=max(*rtols, self.rel_tol) if rtol is None else rtol,
            check_dtype=exact_dtype and len(named) == 2,
            note=note,
        )

    def assertNotEqual(self, x: Any, y: Any, msg: str | None = None, **how: Any) -> None:  # type: ignore[override]
        """Fail if `assertEqual` passes."""
        with pytest.raises(AssertionError):
            self.assertEqual(x, y, **how)


def run_tests(argv: list[str] | None = None) -> None:
    """Run the main program's file with pytest and the options of the command line; for use under ``__main__``."""
    raise SystemExit(pytest.main([sys.argv[0], *(sys.argv[1:] if argv is None else argv)]))
