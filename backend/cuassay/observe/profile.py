"""`profile`: record what a block does, and show it as a table, a Perfetto trace or a page."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from cuassay import devices
from cuassay.core.device import Device
from cuassay.errors import ArgumentError, StateError
from cuassay.observe import page, perfetto
from cuassay.observe.comparison import Comparison, compare, figures
from cuassay.observe.gaps import Gap, idle_gaps
from cuassay.observe.recorder import Recorder
from cuassay.observe.roofline import bandwidths
from cuassay.observe.spans import Timeline
from cuassay.observe.totals import Total, format_seconds, table, totals

__all__ = ["profile"]


class profile:  # noqa: N801  used as a function is, as in ``torch.profiler.profile``
    """Record the ops, kernels, copies, memory, waits and graph replays of a block, in every thread.

    Parameters
    ----------
    device : str or Device, optional
        The device whose clock is used: virtual time for sim, the host's clock for other kinds. None uses the clock of
        the first device on which something is recorded.
    memory : bool
        Whether to record allocations, with the source lines that requested them.
    limit : int
        The largest number of moments kept. Later ones are only counted.
    gives_way : bool
        If true, this profile stops when another one starts. If false, starting another one raises `StateError`.
    kernels : bool
        On CUDA, time each kernel, copy and fill separately, including those of other libraries and of graph replays.
        Pass `device` unless the program has used CUDA before. It needs the package cupti-python, and no other profiler
        may be active in the process. If false, an op is timed as a whole.

    Raises
    ------
    ArgumentError
        If `kernels` is not a bool.
    DeviceError
        If the device does not exist.
    LibraryNotFoundError
        If `kernels` is true and the package cupti-python is not installed.

    Examples
    --------
    >>> import cuassay
    >>> with cuassay.profile("sim") as p:
    ...     x = cuassay.zeros((256, 256), "float32", "sim")
    ...     y = cuassay.ops.mm(x, x)
    >>> [total.name for total in p.totals("kernel")]
    ['mm', 'fill']
    """

    def __init__(
        self,
        device: str | Device | None = None,
        *,
        memory: bool = True,
        limit: int = 2_000_000,
        gives_way: bool = False,
        kernels: bool = False,
    ) -> None:
        for name, value in (("memory", memory), ("kernels", kernels)):
            if not isinstance(value, bool):
                raise ArgumentError(f"{name} is True or False; got a {type(value).__name__}; give one of the two")
        found = None if device is None else devices.find(device)
        self._recorder = Recorder(found, memory=memory, limit=limit, gives_way=gives_way, kernels=kernels)
        self._timeline: Timeline | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        if self._timeline is None:
            return "profile(recording or not begun)"
        virtual = " of virtual time" if self._timeline.unit != "s" else ""
        return f"profile({len(self._timeline.spans):,} spans, {format_seconds(self._timeline.seconds)}{virtual})"

    def start(self) -> None:
        """Start recording.

        Raises
        ------
        StateError
            If this profile has ended, another one is recording, or another profiler is tracing.
        """
        self._recorder.start()

    def stop(self) -> None:
        """Stop recording. If events were recorded to measure times, this waits for their devices.

        A second call does nothing. Raises `StateError` if the profile was not started.
        """
        self._timeline = self._recorder.stop()
        self._timeline.bandwidths = bandwidths(self._timeline)

    @property
    def timeline(self) -> Timeline:
        """The recorded timeline. Raises `StateError` before the end of the block."""
        if self._timeline is None:
            raise StateError("the profile has not ended; ask after its block, or call stop() first")
        return self._timeline

    def totals(self, by: str = "op") -> list[Total]:
        """Return totals by ``"op"``, ``"kernel"`` or ``"site"``, most device time first."""
        return totals(self.timeline, by)

    def table(self, by: str = "op", *, limit: int = 40) -> str:
        """Return `totals` as text: host and device times, each self and total, launches, bytes, and the roofline."""
        return table(self.timeline, by, limit=limit)

    def compare(self, before: profile) -> Comparison:
        """Compare with `before`, a profile of the same work: slower and faster ops, added and removed launches.

        Printing the result gives one line per difference. Totals are compared rather than single calls, so the order
        of calls may differ.
        """
        return compare(figures(before.timeline), figures(self.timeline))

    def gaps(self) -> list[Gap]:
        """Return the idle times of devices between two pieces of work, the longest first, with what the host did."""
        return idle_gaps(self.timeline)

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write a trace that ui.perfetto.dev and chrome://tracing can open."""
        perfetto.write(self.timeline, path)

    def html(self, path: str | Path, title: str = "timeline") -> None:
        """Write a self-contained HTML page: tracks with zoom and search, gaps, memory and tables."""
        Path(path).write_text(page.render(self.timeline, title), encoding="utf-8")
