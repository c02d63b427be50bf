"""The program: where it is, and what it answers with --json."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import warnings
from typing import IO, Any

from .errors import CODES, Error, NoProgram


def find(program: str | os.PathLike[str] | None = None) -> str:
    """The program ckptfs: the one that is named; the one that the wheel brought; the first in PATH."""
    said = "ckptfs" if program is None else os.fspath(program)
    with_wheel = os.path.join(sysconfig.get_path("scripts"), "ckptfs")
    if program is None and os.access(with_wheel, os.X_OK):
        return with_wheel
    found = shutil.which(said)
    if found is None:
        raise NoProgram(f"there is no program {said}", "no_program",
                        "install the wheel that has it, put it into PATH, or name it: program=…", "ENOENT")
    return os.path.abspath(found)


class Program:
    """Runs the program.

    foreign  stores of another user than this one and root are opened, too: that user is trusted
    """

    def __init__(self, program: str | os.PathLike[str] | None = None, foreign: bool = False) -> None:
        self.path = find(program)
        self.foreign = foreign

    def _command(self, command: str, flags: tuple[str, ...], paths: tuple[str, ...]) -> list[str]:
        foreign = ["--foreign"] if self.foreign else []
        return [self.path, command, "--json", *foreign, *flags, "--", *paths]

    def output(self, command: str, *paths: str, flags: tuple[str, ...] = ()) -> bytes:
        """What a command prints. Error if it fails; what it says besides is a UserWarning."""
        ran = subprocess.run(self._command(command, flags, paths), stdin=subprocess.DEVNULL, capture_output=True)
        check(ran.returncode, ran.stderr, ran.stdout)
        return ran.stdout

    def json(self, command: str, *paths: str, flags: tuple[str, ...] = ()) -> Any:
        """What a command answers."""
        return json.loads(self.output(command, *paths, flags=flags))

    def to_file(self, out: IO[bytes], command: str, *paths: str, flags: tuple[str, ...] = ()) -> None:
        """Has a command print to a file that has a descriptor."""
        ran = subprocess.run(self._command(command, flags, paths), stdin=subprocess.DEVNULL, stdout=out,
                             stderr=subprocess.PIPE)
        check(ran.returncode, ran.stderr, b"")


def check(code: int, said: bytes, out: bytes) -> None:
    """Raises the Error of a program that ended with a code and said this on standard error."""
    if code == 0:
        if said.strip():
            warnings.warn(said.decode(errors="replace").strip(), stacklevel=4)
        return
    error = _error(code, said)
    try:
        error.answer = json.loads(out)
    except ValueError:
        pass
    raise error


def _error(code: int, said: bytes) -> Error:
    """The last line that is an error; lines of a log may stand before it."""
    for line in reversed(said.splitlines()):
        try:
            e = json.loads(line)["error"]
            return CODES.get(e["code"], Error)(e["message"], e["code"], e.get("do"), e.get("errno"), code)
        except (ValueError, LookupError, TypeError):
            continue
    text = said.decode(errors="replace").strip()
    return Error(text or f"ckptfs ended with exit code {code}", exit_code=code)
