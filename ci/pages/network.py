"""Keep the site off the network: make pages load local files, and report what they still load from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["use_own_files"]

#: Resources that a page loads by itself, as opposed to links that a reader may follow.
_LOADS = re.compile(r"""<(?:script|img|iframe|source|link rel="stylesheet")[^>]*?(?:src|href)=["']?(https?:[^"'> ]+)""")

#: The shim that makes search work in pages opened from disk. The theme loads it from a third-party server.
_SHIM = re.compile(r"""<script src="?https://unpkg\.com/iframe-worker/shim"?[^>]*></script>""")


def use_own_files(site: Path) -> list[str]:
    """Rewrite the pages in place; return one line for each file that a page would load from the network."""
    faults = []
    for page in sorted(site.rglob("*.html")):
        up = "../" * (len(page.relative_to(site).parts) - 1)
        own = f'<script src="{up}javascripts/worker-from-disk.js"></script>'
        text = _SHIM.sub(own, page.read_text(encoding="utf-8"))
        page.write_text(text, encoding="utf-8")
        faults += [f"{page.relative_to(site)} loads {address} from the network" for address in _LOADS.findall(text)]
    return faults
