"""The base classes of objects that represent a resource of this process: a stream, a loaded kernel, an open file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, NoReturn, Self, SupportsIndex

__all__ = ["Closing", "Handle"]


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


class Closing(Handle, ABC):
    """A handle that a ``with`` statement closes."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Release the resource; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
