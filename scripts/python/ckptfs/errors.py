"""What fails. An Error is what the program said when it failed: its code (docs/commands.md), what happened, and what to do."""

from __future__ import annotations

import errno as _errno
from typing import Any


class Error(OSError):
    """A failure.

    code       one word, such as "not_found"; the classes below are for those that programs decide by
    message    what happened
    do         what may help, or None
    exit_code  of the program
    answer     what it had answered before it failed, or None
    errno      its number, if it has one
    """

    def __init__(
        self, message: str, code: str = "internal", do: str | None = None, errno: str | None = None, exit_code: int = 1
    ) -> None:
        super().__init__(getattr(_errno, errno, None) if errno else None, message)
        self.message, self.code, self.do, self.exit_code = message, code, do, exit_code
        self._errno_name = errno
        self.answer: Any = None

    def __str__(self) -> str:
        return f"{self.message}; {self.do}" if self.do else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.code, self.do, self._errno_name, self.exit_code)


class NotFound(Error, FileNotFoundError):
    """A path, a metric or a tensor is not there."""


class NotStore(Error, FileNotFoundError):
    """The path is in no mount and no store."""


class Invalid(Error, ValueError):
    """The question makes no sense, or the path lies elsewhere than the command wants it."""


class Denied(Error, PermissionError):
    """Only the store's owner and root may ask."""


class Busy(Error):
    """Another process has the store."""


class Newer(Error):
    """A newer version of ckptfs wrote the store."""


class Corrupt(Error):
    """Bytes are not what was written: `ckptfs check` names the files and the repair."""


class Conflict(Error):
    """A file was changed while it was read."""


class NeedsRecovery(Error):
    """The store was not closed in order: mount it once."""


class Unavailable(Error):
    """The daemon is not there, or went away."""


class Unreachable(Error):
    """The object store of a remote cannot be reached."""


class Refused(Error):
    """The object store of a remote refuses: its credentials."""


class NoProgram(Error, FileNotFoundError):
    """There is no program ckptfs."""


CODES: dict[str, type[Error]] = {
    "not_found": NotFound, "not_store": NotStore, "invalid": Invalid, "usage": Invalid, "denied": Denied, "busy": Busy,
    "newer": Newer, "corrupt": Corrupt, "conflict": Conflict, "needs_recovery": NeedsRecovery,
    "unavailable": Unavailable, "unreachable": Unreachable, "refused": Refused, "no_program": NoProgram,
}
