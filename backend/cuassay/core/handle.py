"""The base class of objects that represent a resource of this process: a stream, a capture, a loaded kernel."""

from __future__ import annotations

from typing import Any, NoReturn, SupportsIndex

__all__ = ["Handle"]


class Handle:
    """An object that cannot be pickled or copied.

    A second owner would release the same resource twice, or use it in another process.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raise `TypeError`: a handle cannot be pickled."""
        self._refuse()

    def __copy__(self) -> Any:
        """Raise `TypeError`: a handle cannot be copied."""
        self._refuse()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Raise `TypeError`: a handle cannot be copied."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise TypeError(
            f"{self!r} belongs to this process: it cannot be pickled or copied; share the object itself "
            "within the process, make another one elsewhere"
        )
