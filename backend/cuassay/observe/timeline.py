"""Write a snapshot as one HTML page: live bytes over time by call site, and a map of blocks with their stacks.

The page needs no other file and no network. The pictures are drawn here as SVG. The page's script only shows the stack
of a block that is clicked, so the page is readable without JavaScript.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from cuassay.core.units import format_bytes
from cuassay.observe.usage import EARLIER, OTHERS, Usage, lines_of, site_of, usages

__all__ = ["render"]

#: The width and height of the timeline, and the height of one segment's row in the map, in SVG units.
_WIDTH, _HEIGHT, _ROW = 1000, 300, 18

#: Blocks narrower than this many SVG units are merged with neighbours in the same state.
_NARROW = 1.2

#: The largest number of segments drawn; the smallest segments are left out.
_SEGMENTS = 400

#: Hues that stay distinguishable in light and dark mode; each call site gets one.
_HUES = (212, 28, 145, 350, 268, 48, 185, 320, 95, 12, 240, 165, 70)

_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--faint:#667;--paper:#fff;--line:#d5d9e0;--free:#e7eaef;--wait:#b48a00}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--faint:#9aa3b0;--paper:#14171c;--line:#39404b;--free:#262c35;
--wait:#d9ad2b}}
body{font:14px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:2rem auto;max-width:70rem;
padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.15rem;margin-top:2.2rem}svg{width:100%;display:block}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.15rem .7rem;text-align:right;
border-bottom:1px solid var(--line)}td:first-child,th:first-child{text-align:left;font-family:ui-monospace,monospace}
.swatch{display:inline-block;width:.8em;height:.8em;margin-right:.5em}.faint{color:var(--faint)}
.row{display:grid;grid-template-columns:13rem 1fr;gap:.6rem;align-items:center;margin:2px 0}
.row span{font:11px ui-monospace,monospace;color:var(--faint)}
rect[data-b]{cursor:pointer}rect[data-b]:hover,rect[data-b]:focus{stroke:var(--ink);stroke-width:1.5}
#told{position:sticky;bottom:0;background:var(--paper);border-top:1px solid var(--line);padding:.6rem 0;
white-space:pre-wrap;font:12px/1.45 ui-monospace,monospace;max-height:14rem;overflow:auto}
"""

_SCRIPT = """
const data=JSON.parse(document.getElementById('blocks').textContent),told=document.getElementById('told');
function tell(e){const r=e.target.closest('rect[data-b]');if(!r)return;const b=data.blocks[+r.dataset.b];
told.textContent=b[0]+'\\n'+(data.stacks[b[1]].join('\\n')||'without a stack');}
document.addEventListener('click',tell);
document.addEventListener('keydown',e=>{if(e.key==='Enter')tell(e);});
"""


def render(snapshot: Mapping[str, Any], title: str = "memory") -> str:
    """Return the page of `snapshot` as HTML.

    Parameters
    ----------
    snapshot : mapping
        A snapshot in the schema of ``torch.cuda.memory._snapshot``, such as `cuassay.memory.snapshot.load` returns.
    title : str
        The title of the page.
    """
    blocks = _Blocks()
    found = usages(snapshot)
    parts = [part for usage in found for part in (*_summary(usage), *_timeline(usage), *_sites(usage))]
    parts += [part for usage in found for part in _map(usage, blocks)]
    body = "\n".join(parts) or "<p>The snapshot is of no memory: nothing was taken, and nothing recorded.</p>"
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{_STYLE}</style>\n</head>\n<body>\n'
        f"<h1>{escape(title)}</h1>\n{body}\n"
        '<div id="told" aria-live="polite" class="faint">Click a block to see who asked for it.</div>\n'
        f'<script type="application/json" id="blocks">{blocks.json()}</script>\n<script>{_SCRIPT}</script>\n'
        "</body>\n</html>\n"
    )


# ------------------------------------------------------------------------------------------------ figures


def _summary(usage: Usage) -> Iterator[str]:
    held = sum(segment["total_size"] for segment in usage.segments)
    live = sum(segment["allocated_size"] for segment in usage.segments)
    named = f"peak-{usage.name.replace(' ', '-')}"
    yield f"<h2>{usage.name.capitalize()}</h2>"
    yield (
        f'<p>Peak of live memory: <b id="{named}" data-bytes="{usage.peak}">{format_bytes(usage.peak)}</b> '
        f"({usage.peak:,} bytes), {_time(usage.peak_us)} after the first of {usage.events:,} events. At the end "
        f"{format_bytes(live)} were live, of {format_bytes(held)} taken in {len(usage.segments):,} segments.</p>"
    )


def _sites(usage: Usage) -> Iterator[str]:
    yield '<table class="sites"><tr><th>call site</th><th>at the peak</th><th>its own most</th><th>requests</th></tr>'
    for number, site in enumerate(usage.sites):
        stack = escape("\n".join(site.stack))
        yield (
            f'<tr title="{stack}"><td><span class="swatch" style="background:{_colour(number)}"></span>'
            f"{escape(site.name)}</td>"
            f'<td data-bytes="{site.at_peak}">{format_bytes(site.at_peak)}</td>'
            f'<td data-bytes="{site.most}">{format_bytes(site.most)}</td><td>{site.requests:,}</td></tr>'
        )
    yield "</table>"


def _colour(number: int) -> str:
    return f"hsl({_HUES[number % len(_HUES)]} 62% 52%)"


def _time(micros: int) -> str:
    for unit, name in ((1_000_000, "s"), (1000, "ms")):
        if micros >= unit:
            return f"{micros / unit:.3g} {name}"
    return f"{micros} µs"


# ------------------------------------------------------------------------------------------------ over time


def _timeline(usage: Usage) -> Iterator[str]:
    top = max(usage.peak, *usage.reserved, 1)
    last = max(usage.times[-1], 1)
    xs = [f"{time / last * _WIDTH:.1f}" for time in usage.times]
    yield (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 18}" role="img" aria-label="live bytes over time by call site; '
        f'peak {format_bytes(usage.peak)}">'
    )
    below = [0] * len(xs)
    for number, site in enumerate(usage.sites):
        above = [low + column[number] for low, column in zip(below, usage.columns, strict=True)]
        path = _outline(xs, below, above, top)
        yield f'<path d="{path}" fill="{_colour(number)}"><title>{escape(site.name)}</title></path>'
        below = above
    if any(usage.reserved):
        line = _steps(xs, usage.reserved, top)
        yield f'<path d="M{line}" fill="none" stroke="var(--ink)" stroke-dasharray="4 3"><title>reserved</title></path>'
    yield f'<text x="0" y="12" font-size="11" fill="var(--faint)">{format_bytes(top)}</text>'
    yield (
        f'<text x="{_WIDTH}" y="{_HEIGHT + 14}" font-size="11" text-anchor="end" fill="var(--faint)">'
        f"{_time(usage.times[-1])}</text></svg>"
    )


def _outline(xs: Sequence[str], below: Sequence[int], above: Sequence[int], top: int) -> str:
    upper = _steps(xs, above, top)
    lower = " ".join(reversed(_steps(xs, below, top).split(" ")))
    return f"M{upper} L{lower}Z"


def _steps(xs: Sequence[str], values: Sequence[int], top: int) -> str:
    """Return the points of a step line."""
    points, former = [], ""
    for x, value in zip(xs, values, strict=True):
        y = f"{_HEIGHT - value / top * (_HEIGHT - 16):.1f}"
        if former and former != y:
            points.append(f"{x},{former}")
        points.append(f"{x},{y}")
        former = y
    return " ".join(points)


# ------------------------------------------------------------------------------------------------ by address


class _Blocks:
    """The descriptions that the page's script shows for the drawn blocks. Each stack is stored once."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, int]] = []
        self._stacks: dict[tuple[str, ...], int] = {(): 0}

    def add(self, text: str, stack: tuple[str, ...]) -> int:
        """Store a description, and return its number."""
        self._rows.append((text, self._stacks.setdefault(stack, len(self._stacks))))
        return len(self._rows) - 1

    def json(self) -> str:
        """Return JSON that is safe inside a script element."""
        data = {"blocks": self._rows, "stacks": [list(stack) for stack in self._stacks]}
        return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _map(usage: Usage, blocks: _Blocks) -> Iterator[str]:
    segments = usage.segments
    colours = {site.name: _colour(number) for number, site in enumerate(usage.sites)}
    if not segments:
        return
    drawn = sorted(segments, key=lambda segment: -segment["total_size"])[:_SEGMENTS]
    left = f"; the {len(segments) - len(drawn):,} smallest are left out" if len(drawn) < len(segments) else ""
    yield f"<h2>Blocks of {usage.name}</h2>"
    yield (
        f'<p class="faint">{len(segments):,} segments, each its own row and scale{left}. Live blocks are coloured as '
        "their call sites are above; amber ones are freed, still in use by other streams; pale ones are free.</p>"
    )
    for segment in drawn:
        yield _row(segment, blocks, colours)


def _row(segment: Mapping[str, Any], blocks: _Blocks, colours: Mapping[str, str]) -> str:
    rects = "".join(_rects(segment, blocks, colours))
    name = f"{segment['address']:#x} {format_bytes(segment['total_size'])}, stream {segment['stream']}"
    return (
        f'<div class="row" data-segment="{segment["address"]:#x}"><span>{escape(name)}</span>'
        f'<svg viewBox="0 0 {_WIDTH} {_ROW}" preserveAspectRatio="none" height="{_ROW}">{rects}</svg></div>'
    )


def _rects(segment: Mapping[str, Any], blocks: _Blocks, colours: Mapping[str, str]) -> Iterator[str]:
    total = max(segment["total_size"], 1)
    for run in _runs(segment["blocks"], total * _NARROW / _WIDTH):
        x = (run[0]["address"] - segment["address"]) / total * _WIDTH
        width = sum(block["size"] for block in run) / total * _WIDTH
        number = blocks.add(*_description(run))
        yield (
            f'<rect data-b="{number}" tabindex="0" x="{x:.2f}" width="{max(width, 0.3):.2f}" height="{_ROW}" '
            f'fill="{_fill(run[0], colours)}"/>'
        )


def _runs(blocks: Iterable[Mapping[str, Any]], narrow: float) -> Iterator[list[Mapping[str, Any]]]:
    """Group narrow neighbouring blocks in the same state, up to the size `narrow`; other blocks stay alone."""
    run: list[Mapping[str, Any]] = []
    for block in blocks:
        joins = run and run[-1]["state"] == block["state"] and block["size"] < narrow
        if not joins or sum(one["size"] for one in run) >= narrow:
            if run:
                yield run
            run = []
        run.append(block)
    if run:
        yield run


def _description(run: Sequence[Mapping[str, Any]]) -> tuple[str, tuple[str, ...]]:
    first = run[0]
    state = {"active_allocated": "live", "inactive": "free"}.get(first["state"], "freed, in use by other streams")
    nbytes = sum(block["size"] for block in run)
    if len(run) > 1:
        return f"{len(run):,} blocks, {state}, {format_bytes(nbytes)} ({nbytes:,} bytes)", ()
    asked = f", {first['requested_size']:,} asked for" if first["requested_size"] else ""
    return f"{first['address']:#x}: {state}, {nbytes:,} bytes{asked}", lines_of(first["frames"])


def _fill(block: Mapping[str, Any], colours: Mapping[str, str]) -> str:
    if block["state"] == "inactive":
        return "var(--free)"
    if block["state"] != "active_allocated":
        return "var(--wait)"
    name = site_of(block["frames"]) if block["frames"] else EARLIER
    return colours.get(name) or colours.get(OTHERS, "var(--faint)")
