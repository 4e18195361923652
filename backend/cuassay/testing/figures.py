"""Make pytest-benchmark's own files useful for devices: plain parameters, fingerprints, only valid comparisons.

This plugin is registered only if pytest-benchmark is.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import pytest

__all__ = ["Figures", "refuse_figures_of_workers"]

#: Options of pytest-benchmark that request measurements, without their prefix.
_FIGURES = ("only", "enable", "json", "save", "autosave", "compare")

#: The key of our facts in pytest-benchmark's ``machine_info``.
_KEY = "cuassay"


def refuse_figures_of_workers(config: pytest.Config) -> None:
    """Raise if workers are asked to measure: pytest-benchmark would measure nothing there, and succeed.

    Raises
    ------
    pytest.UsageError
        If an option requests measurements, and workers run the tests.
    """
    is_distributed, is_isolated = config.getoption("tx", default=None), config.getoption("cuassay_isolate")
    if not (is_distributed or is_isolated) or config.getoption("benchmark_disable", default=False):
        return
    instead = (
        "workers of xdist measure none; add -n0 to this command"
        if is_distributed
        else "isolated tests measure none; leave out --cuassay-isolate"
    )
    for name in _FIGURES:
        if config.getoption(f"benchmark_{name}", default=None):
            raise pytest.UsageError(f"--benchmark-{name} asks for figures, and {instead}")


class Figures:
    """Implements hooks of pytest-benchmark."""

    def __init__(self) -> None:
        self._saved: list[dict[str, Any]] = []
        self._refused: list[str] = []

    def __repr__(self) -> str:
        return f"Figures({len(self._saved)} saved files, {len(self._refused)} refused)"

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        """Write parameters that are objects, such as a device, as in a test's id."""
        for benchmark in output_json.get("benchmarks", ()):
            if benchmark.get("params"):
                benchmark["params"] = {name: _plain(value) for name, value in benchmark["params"].items()}

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, config: pytest.Config, machine_info: dict[str, Any]) -> None:
        """Add the fingerprint of each measured device."""
        found = {str(device): _fingerprint(device) for device in _measured(config)}
        if found:
            machine_info[_KEY] = found

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_compare_machine_info(self, compared_benchmark: dict[str, Any]) -> None:
        """Remember the fingerprint of the saved times; pytest-benchmark calls this before the first test."""
        self._saved.append(compared_benchmark.get("machine_info", {}).get(_KEY, {}))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Before pytest-benchmark makes its tables, discard a comparison with times of another kind of machine."""
        if self._saved:
            self._refused += _differences(self._saved, session.config)
        if self._refused:
            session.config._benchmarksession.compared_mapping.clear()  # type: ignore[attr-defined]  # noqa: SLF001
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
        return (yield)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Report what was not compared, and why."""
        for refused in self._refused:
            terminalreporter.write_line(
                f"ERROR cuassay: the saved times are not comparable, {refused}; give --benchmark-compare a file of the "
                "same kind of machine",
                red=True,
            )


def _differences(saved: Sequence[Mapping[str, Any]], config: pytest.Config) -> Iterator[str]:
    """Describe each measured device that differs from one of the `saved` fingerprints."""
    from cuassay.results.fingerprint import difference  # imports NumPy, which a project may not use

    for device in _measured(config):
        for known in saved:
            if changed := difference(known.get(str(device), {}), _fingerprint(device)):
                yield f"{device}: {'; '.join(changed)}"


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(getattr(value, "name", value))


def _measured(config: pytest.Config) -> Iterator[Any]:
    """The devices that this session measured, each once."""
    from cuassay import devices
    from cuassay.errors import DeviceError

    session = getattr(config, "_benchmarksession", None)
    names = [one.extra_info.get("device") for one in getattr(session, "benchmarks", ())]
    for name in dict.fromkeys(name for name in names if isinstance(name, str)):
        try:
            yield devices.find(name)
        except DeviceError:
            continue  # a test stored something else under this name


def _fingerprint(device: Any) -> dict[str, object]:
    from cuassay.testing.device_facts import fingerprint_of

    return dict(fingerprint_of(device))
