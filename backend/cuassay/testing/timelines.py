"""``pytest --cuassay-timeline DIR`` writes the timeline of each test that fails or is slow, as a separate page.

Every test is recorded, and most recordings are discarded. This costs a few microseconds for each call of an op.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from hashlib import sha256
from os.path import relpath
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from cuassay.core.device import Device
from cuassay.observe.profile import profile
from cuassay.testing.recording import TIMELINE

__all__ = ["Timelines", "page_name"]

#: The most events that are kept of one test; a page with 100,000 takes about 3 MB.
_LIMIT = 200_000

#: The most characters of a test's id in the name of its page.
_LONGEST = 100


class Timelines:
    """Writes pages to a folder, which is created with the first page.

    Parameters
    ----------
    folder : Path
        The folder.
    slow_s : float
        Seconds from which the call of a test is slow.
    record : Path, optional
        The result file, whose rows name the pages, so that a report can link to them.
    """

    def __init__(self, folder: Path, slow_s: float, record: Path | None = None) -> None:
        self._folder = folder
        self._slow_s = slow_s
        self._record = record

    def __repr__(self) -> str:
        return f"Timelines({self._folder}, from {self._slow_s} s)"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Record the call; in a test that starts its own profile, only until then."""
        recorded = profile(_device(item), limit=_LIMIT, gives_way=True)
        begin, is_wanted = perf_counter(), True
        recorded.start()
        try:
            result = yield
            is_wanted = perf_counter() - begin >= self._slow_s
        except pytest.skip.Exception:
            is_wanted = False
            raise
        finally:
            recorded.stop()
            if is_wanted:
                self._keep(item, recorded)
        return result

    def _keep(self, item: pytest.Item, recorded: profile) -> None:
        if not recorded.timeline.spans:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / page_name(item.nodeid)
        recorded.html(path, title=item.nodeid)
        item.user_properties.append((TIMELINE, self._link(path)))
        item.add_report_section("call", "cuassay timeline", f"{path}")

    def _link(self, page: Path) -> str:
        """The path of `page` from the result file; only its name if it is elsewhere, as rows contain no folders."""
        place = "" if self._record is None else Path(relpath(page, self._record.resolve().parent)).as_posix()
        return page.name if not place or place.startswith("../..") else place


def page_name(nodeid: str) -> str:
    """A file name for the test: a readable part of its id, and a digest that makes it unique."""
    readable = re.sub(r"[^A-Za-z0-9_.=-]+", "-", nodeid.rpartition("/")[2])[:_LONGEST].strip("-.")
    return f"{readable}-{sha256(nodeid.encode()).hexdigest()[:8]}.html"


def _device(item: pytest.Item) -> Device | None:
    """The device of the test's case; the timeline uses its clock."""
    name = dict(item.user_properties).get("device")
    return Device(str(name)) if name else None
