"""`profile`: record what a block does, and look at it as a table, a Perfetto trace or a page."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from cuassay.core.device import Device
from cuassay.errors import ArgumentError, StateError
from cuassay.observe import page, perfetto
from cuassay.observe.comparison import Comparison, compare, figures
from cuassay.observe.gaps import Gap, idle_gaps
from cuassay.observe.recorder import Recorder
from cuassay.observe.spans import Timeline
from cuassay.observe.totals import Total, table, totals

__all__ = ["profile"]


class profile:  # noqa: N801  used as a function is, as in ``torch.profiler.profile``
    """Record ops, kernels, copies, memory, waits and replays of the block, in every thread.

    Parameters
    ----------
    device : str or Device, optional
        Whose clock is used: virtual time for sim, the host's for others. None takes that of the first device on which
        something happens.
    memory : bool
        Whether blocks are recorded, with the lines that asked for them.
    limit : int
        Moments kept; later ones are counted and left out.
    gives_way : bool
        Stop when another profile starts. Otherwise that one is refused.
    kernels : bool
        On CUDA, time each kernel, copy and fill by itself, also those of other libraries and those of graph replays.
        Give `device`, unless the program has used CUDA before. It needs ``cuassay[cupti]``, and no other profiler in
        the process. Without it an op is timed as a whole.

    Raises
    ------
    ArgumentError
        If `kernels` is not a truth value.
    LibraryNotFoundError
        If `kernels` is asked for and the package cupti-python is not there.

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
        if not isinstance(kernels, bool):
            raise ArgumentError(f"kernels is True or False; got a {type(kernels).__name__}; give one of the two")
        found = None if device is None else Device(device)
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
        return f"profile({len(self._timeline.spans):,} spans, {self._timeline.seconds:.6g} {self._timeline.unit})"

    def start(self) -> None:
        """Record from here. Raises `StateError` where another profile is recorded, or another profiler traces."""
        self._recorder.start()

    def stop(self) -> None:
        """Stop recording; where events were recorded to take times, this waits for the device."""
        self._timeline = self._recorder.stop()

    @property
    def timeline(self) -> Timeline:
        """What was recorded. Raises `StateError` before the end of the block."""
        if self._timeline is None:
            raise StateError("the profile has not ended; ask after its block, or call stop() first")
        return self._timeline

    def totals(self, by: str = "op") -> list[Total]:
        """Figures by ``"op"``, ``"kernel"`` or ``"site"``, most device time first."""
        return totals(self.timeline, by)

    def table(self, by: str = "op", *, limit: int = 40) -> str:
        """`totals` as text: host and device, self and total, launches, bytes."""
        return table(self.timeline, by, limit=limit)

    def compare(self, before: profile) -> Comparison:
        """What changed since `before`, which recorded the same work: ops that got slower, launches that were added.

        Printed, it is a line for each; nothing is compared call by call, so that the order of calls may differ.
        """
        return compare(figures(before.timeline), figures(self.timeline))

    def gaps(self) -> list[Gap]:
        """When devices had nothing to do between two pieces of work, the longest first, and what the host did then."""
        return idle_gaps(self.timeline)

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write a trace that ui.perfetto.dev and chrome://tracing open."""
        perfetto.write(self.timeline, path)

    def html(self, path: str | Path, title: str = "timeline") -> None:
        """Write one page that needs no other file: lanes with zoom and search, gaps, memory, tables."""
        Path(path).write_text(page.render(self.timeline, title), encoding="utf-8")
