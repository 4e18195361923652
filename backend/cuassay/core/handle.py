"""What represents something that only this process has: a stream, a capture, a loaded kernel."""

from __future__ import annotations

from typing import Any, NoReturn, SupportsIndex

__all__ = ["Handle"]


class Handle:
    """Neither pickled nor copied: a second owner would release the same thing twice, or use it in another process."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse what pickle and copy ask for, in words."""
        self._refuse()

    def __copy__(self) -> Any:
        """Refuse."""
        self._refuse()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Refuse."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise TypeError(
            f"{self!r} belongs to this process: it cannot be pickled or copied; share the object itself "
            "within the process, make another one elsewhere"
        )
