"""Register the plugins that a session's options ask for, in workers and in the process that reports.

Each plugin's module is imported only if it is needed.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pytest

from cuassay.core import extras, settings
from cuassay.errors import DeviceError, ResultError
from cuassay.testing.exits import guard_exits
from cuassay.testing.isolation import worker_input
from cuassay.testing.presence import Presence

__all__ = ["register"]


def register(config: pytest.Config, presence: Presence) -> None:
    """Register the plugins of this session."""
    if not config.pluginmanager.hasplugin("benchmark"):
        config.pluginmanager.register(_WithoutBenchmark(), "cuassay_without_benchmark")
    if config.getoption("cuassay_shard"):
        from cuassay.testing.sharding import Sharding, parse_shard

        config.pluginmanager.register(Sharding(parse_shard(config.getoption("cuassay_shard"))), "cuassay_sharding")
    if config.getoption("cuassay_resume"):
        from cuassay.testing.resume import Resume

        config.pluginmanager.register(Resume.of(config), "cuassay_resume")
    if config.getini("cuassay_skips") or config.getoption("cuassay_check_skips"):
        from cuassay.testing import skips_plugin

        skips_plugin.register(config, presence)
    if config.getoption("cuassay_fail_unchecked"):
        from cuassay.testing.unchecked import Unchecked, refuse_tracer

        refuse_tracer()
        config.pluginmanager.register(Unchecked(), "cuassay_unchecked")
    if config.getoption("cuassay_timeline"):
        from cuassay.testing.timelines import Timelines

        folder = Path(config.getoption("cuassay_timeline")).resolve()
        record = config.getoption("cuassay_record")
        plugin = Timelines(folder, config.getoption("cuassay_timeline_slow"), Path(record) if record else None)
        config.pluginmanager.register(plugin, "cuassay_timelines")
    if config.getoption("cuassay_sanitize"):
        from cuassay.testing.sanitizing import Sanitizing

        config.pluginmanager.register(Sanitizing(), "cuassay_sanitizing")
    if hasattr(config, "workerinput"):
        _register_in_worker(config)
    else:
        _register_in_controller(config, presence)


def _register_in_worker(config: pytest.Config) -> None:
    if worker_input(config, "cuassay_faults") is not None:
        return  # an isolated worker, which follows its controller already; xdist may not be installed
    from cuassay.results.lifeline import follow
    from cuassay.testing.workers import Reporter

    follow(os.getppid())  # otherwise a worker of xdist notices only between tests that its controller is gone
    config.pluginmanager.register(Reporter(), "cuassay_reporter")


def _register_in_controller(config: pytest.Config, presence: Presence) -> None:
    from cuassay.testing.figures import Figures, refuse_figures_of_workers
    from cuassay.testing.summary import Tally

    guard_exits(config)
    refuse_figures_of_workers(config)
    if config.pluginmanager.hasplugin("benchmark"):
        config.pluginmanager.register(Figures(), "cuassay_figures")
    if config.getoption("cuassay_isolate") and not config.getoption("tx", default=None):
        from cuassay.testing.controller import Controller, refuse_debugger

        refuse_debugger(config)
        config.pluginmanager.register(Controller(config, presence), "cuassay_controller")
    required = _required(presence)
    is_part = bool(config.getoption("cuassay_shard"))
    config.pluginmanager.register(Tally(required, is_part=is_part), "cuassay_tally")
    _expect(config)
    if config.getoption("tx", default=None):  # otherwise xdist starts no workers
        config.pluginmanager.register(_workers(config, presence), "cuassay_workers")
    if config.getoption("cuassay_record"):
        _record(config, presence)


def _workers(config: pytest.Config, presence: Presence) -> Any:
    from cuassay.testing.workers import Workers

    mode = config.getoption("cuassay_workers")
    if mode == "one":
        return Workers(presence)
    from cuassay.testing.pool import pools_of

    pools = pools_of(presence, mode)
    folder = str(settings.get("CUASSAY_RESERVATIONS")) if mode == "share" else ""
    if mode == "share" and not folder:
        folder = mkdtemp(prefix="cuassay-")
        config.add_cleanup(lambda: rmtree(folder, ignore_errors=True))
    return Workers(presence, pools, folder)


def _record(config: pytest.Config, presence: Presence) -> None:
    """Record the outcomes of the tests."""
    from cuassay.testing.recording import Recording

    path = Path(config.getoption("cuassay_record"))
    run, shard = config.getoption("cuassay_run"), config.getoption("cuassay_shard")
    try:
        recording = Recording(path, presence, run=run, root=config.rootpath, shard=shard)
    except ResultError as error:
        raise pytest.UsageError(f"--cuassay-record: {error}") from None
    config.pluginmanager.register(recording, "cuassay_recording")


def _expect(config: pytest.Config) -> None:
    """Fail the session for skipped or unchecked tests, if an option asks for it."""
    budgets, baseline = config.getoption("cuassay_skip_budget"), config.getoption("cuassay_skip_baseline")
    fails_nowhere = config.getoption("cuassay_fail_nowhere")
    if not (budgets or baseline or fails_nowhere or config.getoption("cuassay_fail_unchecked")):
        return
    from cuassay.testing.expected import Expected, parse_budgets, ran_in

    ran = ran_in(Path(baseline)) if baseline else frozenset[str]()
    expected = Expected(parse_budgets(budgets), ran, fails_nowhere=fails_nowhere)
    config.pluginmanager.register(expected, "cuassay_expected")


def _required(presence: Presence) -> tuple[Any, ...]:
    try:
        return presence.required
    except DeviceError as error:
        pytest.exit(f"--require-device: {error}", returncode=pytest.ExitCode.TESTS_FAILED)


class _WithoutBenchmark:
    """Provides the fixture `benchmark` if pytest-benchmark is not installed, or turned off by ``-p no:benchmark``."""

    @pytest.fixture
    def benchmark(self) -> None:
        """Skip tests that measure."""
        if find_spec("pytest_benchmark") is None:
            pytest.skip(f"pytest-benchmark is not installed; install it with: {extras.pip_install('benchmark')}")
        pytest.skip("pytest-benchmark is turned off; leave out -p no:benchmark")
