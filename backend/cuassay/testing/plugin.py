"""The pytest plugin: its hooks, in the order in which pytest calls them. The modules that they call make the decisions.

At the start the options are read. Collection makes cases from names alone. Before each test the plugin finds out
whether its device can run it, and makes that device the current one. After a failed test it checks that the device
still works. NumPy and the devices are loaded only when the first test needs a device.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import ExitStack, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import pytest

from cuassay.core import settings
from cuassay.core.device import Device
from cuassay.errors import DeviceError, ResultError, SettingError
from cuassay.testing import options, rerun, skips
from cuassay.testing.case_columns import case_columns
from cuassay.testing.collecting import collect_generated, warn_of_unassigned
from cuassay.testing.harness import HARNESS, Harness
from cuassay.testing.marks import MARKERS
from cuassay.testing.parametrize import ConformanceClass
from cuassay.testing.presence import SESSIONS
from cuassay.testing.registering import register
from cuassay.testing.reserving import held

if TYPE_CHECKING:
    pass

#: Columns of a case that reports carry, but that are not added to the test's properties.
_NOT_PROPERTIES = ("check", "target", "own_reference", "template")

#: What pytest writes below an error of which it shows no line; other hints name other things.
_ALL_HIDDEN = "All traceback entries are hidden. Pass `--full-trace` to see hidden and internal frames."

_CASE = pytest.StashKey[dict[str, Any]]()
_COLUMNS = pytest.StashKey[dict[str, Any]]()
_IS_NOWHERE = pytest.StashKey[bool]()
_CURRENT = pytest.StashKey[ExitStack]()


# -------------------------------------------------------------------------------------------------- start


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options under their long names."""
    options.add_options(parser)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, args: list[str], parser: pytest.Parser
) -> Generator[None, Any, Any]:
    """Translate short option names, after the conftests had their chance to define options of these names."""
    options.hide_values(early_config, args)
    result = yield
    options.translate_short_names(args, parser, for_help=bool(early_config.known_args_namespace.help))
    return result


def pytest_configure(config: pytest.Config) -> None:
    """Find the devices that the user chose; a device that does not exist ends the session here."""
    for form, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{form}: {meaning}")
    try:
        settings.check()
        _check_revision(config)
        harness = config.stash[HARNESS] = Harness(config)
        SESSIONS.append(harness.presence)
        config.add_cleanup(lambda: SESSIONS.remove(harness.presence))
        if harness.presence.is_explicit:
            _ = harness.presence.devices
    except (DeviceError, ResultError, SettingError) as error:
        raise pytest.UsageError(str(error)) from None
    register(config, harness.presence)


def _check_revision(config: pytest.Config) -> None:
    """Report an invalid revision name before a record is opened."""
    if settings.get("CUASSAY_REVISION"):
        from cuassay.results.fingerprint import revision

        revision(config.rootpath)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the file of the hang guard."""
    harness = config.stash.get(HARNESS, None)
    if harness is not None:
        harness.hang.close()


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name the devices, if the user chose them."""
    harness = config.stash[HARNESS]
    notes = [f"cuassay: {name} is not a setting; did you mean {meant}?" for name, meant in settings.misspelt().items()]
    if harness.hang.yields:
        notes.append(
            "cuassay: CUASSAY_HANG_SECONDS is not used: faulthandler_timeout is set, and there is one such clock"
        )
    return [*_header(config), *notes] if harness.presence.is_decided else notes


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Name the devices, if they were chosen because a test takes `device`."""
    harness = config.stash[HARNESS]
    return _header(config) if harness.presence.is_decided and not harness.presence.is_explicit else []


def _header(config: pytest.Config) -> list[str]:
    from cuassay.testing.summary import header

    return header(config.stash[HARNESS].presence, str(config.rootpath))


# -------------------------------------------------------------------------------------------------- collection


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test that takes `device`, `dtype` or `op`."""
    try:
        metafunc.config.stash[HARNESS].parametrize(metafunc)
    except pytest.UsageError as error:
        raise pytest.Collector.CollectError(str(error)) from None  # shown without the frames of this plugin


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> ConformanceClass | None:
    """Collect ``test_x = conformance(...)`` as a class of tests."""
    return collect_generated(collector, name, obj)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``--benchmark-only``, deselect cases without a benchmark: if skipped, they would look unsupported."""
    if not config.getoption("benchmark_only", default=False):
        return
    left_out = [item for item in items if skips.case_of(item) and "benchmark" not in getattr(item, "fixturenames", ())]
    if left_out:
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Warn of generated tests that were not assigned, once their module has been collected."""
    result = yield
    warn_of_unassigned(collector)
    return result


@pytest.fixture
def xp(device: Any) -> Any:
    """The array module of `device`, which is the current device during the test."""
    from cuassay.devices import backend, find, namespace

    found = find(device)  # a project's own `device` fixture may return a name
    with backend(found.kind).activate(found.index):
        yield namespace(found)


@pytest.fixture
def device_benchmark(benchmark: Any, request: pytest.FixtureRequest) -> Any:
    """Measure calls with the device's clock; see `cuassay.benchmarking.pytest_benchmark.DeviceBenchmark`."""
    from cuassay.benchmarking.pytest_benchmark import device_benchmark

    return device_benchmark(benchmark, request)


# -------------------------------------------------------------------------------------------------- each test


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Name the case in every report of the test, and limit the time that it may take."""
    harness = item.config.stash[HARNESS]
    item.stash[_CASE] = skips.case_of(item)
    columns = item.stash[_COLUMNS] = case_columns(item)
    item.stash[_IS_NOWHERE] = skips.is_nowhere(item)
    item.user_properties.extend((name, value) for name, value in columns.items() if name not in _NOT_PROPERTIES)
    if harness.trail is not None:
        harness.trail.begin()
    token = rerun.TARGET.set(rerun.target_of(item))
    try:
        with held(item) if harness.reserves else nullcontext(), harness.hang.around():
            return (yield)
    finally:
        rerun.TARGET.reset(token)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a case that its device cannot run, with one reason that names everything missing; else make it current.

    While the device is current, fixtures and tests that call an array library directly allocate on it.
    """
    __tracebackhide__ = True
    case = item.stash.get(_CASE, {})
    if case and "fingerprint" not in dict(item.user_properties):
        item.user_properties.append(("fingerprint", _digest(case["device"])))
    lost = item.config.stash[HARNESS].lost
    reason = (lost.why(case["device"]) if case else None) or skips.why_skipped(item, case)
    if case and lost.is_by(item.nodeid, case["device"]):  # a skip would hide that it failed
        pytest.fail(f"{reason}: it ran again, which needs a fresh process", pytrace=False)
    declined = skips.opted_out(item, case)
    if reason is not None or declined is not None:
        item.stash[_COLUMNS]["is_of_check"] = declined is not None or skips.is_of_check(item, case)
        reason = reason or declined
        raise pytest.skip.Exception(reason, _use_item_location=True)
    skips.expect_known_failure(item, case)
    if case:
        _make_current(item, case["device"])


def _make_current(item: pytest.Item, device: Device) -> None:
    from cuassay.devices import backend

    owner = backend(device.kind)
    if not owner.is_current(device.index):
        current = item.stash[_CURRENT] = ExitStack()
        current.enter_context(owner.activate(device.index))


def _digest(device: Device) -> str:
    from cuassay.results.fingerprint import digest
    from cuassay.testing.device_facts import fingerprint_of

    return digest(fingerprint_of(device))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Collect how close to its tolerances the test came, and where in a result the errors are."""
    compare = sys.modules.get("cuassay.testing.compare")
    is_case = bool(compare is not None and item.stash.get(_CASE, {}))
    with compare.collecting(item.stash[_COLUMNS]) if compare is not None and is_case else nullcontext():
        result = yield
    if item.config.stash[HARNESS].is_replaceable:
        _find_late_fault(item)
    return result


def _find_late_fault(item: pytest.Item) -> None:
    """Fail a test that passed but broke its device: a fault in a kernel shows only when the host waits for it."""
    harness = item.config.stash[HARNESS]
    for device in harness.watched(item.stash.get(_CASE, {})):
        harness.lost.check(device, item.nodeid)
    if (news := harness.lost.take_news(item.nodeid)) is not None:
        pytest.fail(news, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Attach the case to the report, and check whether the device of a failed test still works."""
    if call.excinfo is not None and not item.config.getoption("fulltrace") and not item.config.getoption("usepdb"):
        from cuassay.testing.tracebacks import shorten

        shorten(call.excinfo.value)
    report: pytest.TestReport = yield
    case = item.stash.get(_CASE, {})
    is_nowhere = item.stash.get(_IS_NOWHERE, False)
    if case or is_nowhere:
        # xdist sends plain attributes to the controller.
        report.__dict__["cuassay"] = item.stash.get(_COLUMNS, {}).copy()
    if report.failed and call.excinfo is not None:
        _diagnose(item, case, call.excinfo.value, report)
    declared_at = getattr(getattr(item, "cls", None), "cuassay_declared_at", None)
    if declared_at is not None and report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = *declared_at, report.longrepr[2]  # the user's line, not that of the generated test
    shown: Any = getattr(report.longrepr, "reprtraceback", None)
    if declared_at is not None and getattr(shown, "extraline", None) == _ALL_HIDDEN:
        shown.extraline = None  # the message of a check says where to look
    return report


def _diagnose(item: pytest.Item, case: dict[str, Any], error: BaseException, report: pytest.TestReport) -> None:
    """Find out whether a failed test lost its device, and whether the machine caused the failure."""
    from cuassay.testing.infrastructure import infrastructure_failure

    harness = item.config.stash[HARNESS]
    for device in harness.watched(case):
        harness.lost.check(device, item.nodeid)
    cause = infrastructure_failure(error, None if harness.lost else case.get("device"))
    if cause is not None:
        report.__dict__["cuassay_infrastructure"] = cause  # sent by xdist as well
    if harness.is_replaceable and harness.lost:
        report.__dict__["cuassay_lost"] = "crashed"
        if (news := harness.lost.take_news(item.nodeid)) is not None:
            report.sections.append(("cuassay", news))
        if harness.trail is not None:
            harness.trail.add_to(report.longrepr)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Restore the previous current device; report a lost device once, as the error of the test that lost it."""
    lost = item.config.stash[HARNESS].lost
    if lost and item.config.stash[HARNESS].is_replaceable:
        return (yield from _undo_on_lost(item))
    try:
        with item.stash.get(_CURRENT, nullcontext()):
            result = yield
    except Exception as error:  # fixtures of a lost device may raise
        if (news := lost.take_news(item.nodeid)) is not None:
            raise pytest.fail.Exception(f"{news}\nthen, undoing the test: {error!r}", pytrace=False) from error
        raise
    if (news := lost.take_news(item.nodeid)) is not None:
        pytest.fail(news, pytrace=False)
    return result


def _undo_on_lost(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run the teardown, and ignore errors: the test's report already says that the device is lost."""
    with suppress(Exception), item.stash.get(_CURRENT, nullcontext()):
        return (yield)
