"""ckptfs:// for fsspec: the files of a store to read, mounted or not.

    pandas.read_parquet("ckptfs:///data/store/runs/a/3/eval.parquet")
    fsspec.open("ckptfs:///mnt/ckpt/runs/a/3/model.safetensors")

What follows ckptfs:// is the absolute path of a mount or of a store's folder, and the path of a file in it. A file is read by the program, in blocks of which some
are kept. Packed bytes are compared with their hashes. A file that is changed while it is open fails (Conflict): its parts would be of two files.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any, NoReturn

from fsspec.caching import BaseCache, register_cache
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from .errors import Error, Invalid, NotFound
from .program import Program

_AT_A_TIME = 500  # paths of one command line
_BLOCK = 1 << 20  # bytes


class CkptfsFileSystem(AbstractFileSystem):
    """The files of all stores that this user may read, by their absolute paths. Every answer is of that moment: nothing is cached.

    program  the binary, by default the one that the wheel brought, or in PATH
    foreign  stores of another user than this one and root are opened, too: that user is trusted
    """

    protocol = "ckptfs"
    root_marker = "/"

    def __init__(self, program: str | os.PathLike[str] | None = None, foreign: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.program = Program(program, foreign)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(p) for p in path]
        said = os.fspath(path)
        at = said.removeprefix("ckptfs://")
        if not at.startswith("/"):
            if at:
                raise Invalid(f"{said} is no absolute path", "invalid", "write ckptfs:///PATH, with three slashes", "EINVAL")
            return "/"
        return "/" + "/".join(part for part in at.split("/") if part)

    # Listing.

    def _entries(self, *paths: str, flags: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.program.json("ls", *paths, flags=flags)["entries"]
        return found

    def _itself(self, path: str) -> dict[str, Any]:
        """The entry of a path, as the program has it."""
        try:
            return self._entries(path, flags=("--directory",))[0]
        except Error as e:
            if e.errno == errno.ENOTDIR:
                raise NotFound(e.message, "not_found", e.do, "ENOENT", e.exit_code) from None
            raise

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """What is known of a path: name, type ("file", "directory", "link" where it leads nowhere, or "other"), size, state, view, mtime (seconds), changed (the time of the last
        change, as `cat --if-unchanged` takes it), mode, uid, gid, ino, islink."""
        path = self._strip_protocol(path)
        return _info(path, self._itself(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """What is in a folder; of a file, itself."""
        path = self._strip_protocol(path)
        entries = self._entries(path)
        # A file is listed as itself: so is what a folder has, if it has one thing of its own name.
        if len(entries) == 1 and _name(entries[0]["name"]) == os.path.basename(path):
            own = self._itself(path)
            if not stat.S_ISDIR(own["mode"]):
                return [_info(path, own)] if detail else [path]
        found = [_info(_join(path, _name(e["name"])), e) for e in entries]
        return self._followed(found) if detail else [i["name"] for i in found]

    def _followed(self, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Links are what they lead to."""
        links = [n for n, i in enumerate(found) if i["type"] == "link"]
        for begin in range(0, len(links), _AT_A_TIME):
            some = links[begin:begin + _AT_A_TIME]
            try:
                entries = self._entries(*(found[n]["name"] for n in some), flags=("--directory",))
                for n, e in zip(some, entries, strict=True):
                    found[n] = {**_info(found[n]["name"], e), "islink": True}
            except Error:  # one of them leads nowhere
                for n in some:
                    try:
                        found[n] = {**self.info(found[n]["name"]), "islink": True}
                    except Error:
                        pass
        return found

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **kwargs: Any
    ) -> Any:
        """The files below a path; maxdepth bounds how deep, withdirs adds folders. Links to folders are not followed."""
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        path = self._strip_protocol(path)
        try:
            own = self._itself(path)
        except FileNotFoundError:
            return {} if detail else []
        out: dict[str, dict[str, Any]] = {}
        if not stat.S_ISDIR(own["mode"]):
            out[path] = _info(path, own)
        elif maxdepth is None:
            top = _name(own["path"]).strip("/")
            found = []
            for e in self._entries(path, flags=("--recursive",)):
                inside = _name(e["path"])[len(top):].lstrip("/")
                found.append(_info(_join(path, inside), e))
            out = {i["name"]: i for i in self._followed(found)}
            if withdirs:
                out[path] = _info(path, own)
        else:
            level = [path]
            for _ in range(maxdepth):
                below = [i for folder in level for i in self.ls(folder)]
                out.update((i["name"], i) for i in below)
                level = [i["name"] for i in below if i["type"] == "directory" and not i["islink"]]
            if withdirs:
                out[path] = _info(path, own)
        names = sorted(n for n, i in out.items() if withdirs or i["type"] != "directory")
        return {n: out[n] for n in names} if detail else names

    def created(self, path: str) -> NoReturn:
        """Nobody knows."""
        raise NotImplementedError("a store does not know when a file was made: modified says when it was written last")

    def modified(self, path: str) -> datetime:
        """When a file was written last."""
        return datetime.fromtimestamp(self.info(path)["mtime"], timezone.utc)

    def ukey(self, path: str) -> str:
        """Another one if a file is changed."""
        i = self.info(path)
        return f"{i['ino']}-{i['size']}-{i['changed']}"

    def checksum(self, path: str) -> int:
        """ukey, as a number."""
        from fsspec.utils import tokenize

        return int(tokenize(self.ukey(path)), 16)

    # Reading.

    def _part(self, path: str, start: int, end: int | None, changed: str | None = None) -> bytes:
        flags = [f"--offset={start}"]
        if end is not None:
            flags.append(f"--length={end - start}")
        if changed is not None:
            flags.append(f"--if-unchanged={changed}")
        return self.program.output("cat", path, flags=tuple(flags))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """The bytes from start to end, which count from the end of the file if they are negative."""
        path = self._strip_protocol(path)
        if (start or 0) < 0 or (end or 0) < 0:
            size = self.info(path)["size"]
            start = start if start is None or start >= 0 else max(0, size + start)
            end = end if end is None or end >= 0 else size + end
        start = start or 0
        if end is not None and end <= start:
            return b""
        return self._part(path, start, end)

    def get_file(self, rpath: str, lpath: Any, callback: Any = None, outfile: Any = None, **kwargs: Any) -> None:
        """Copies a file to a file of this machine, or makes a folder. What was copied only in part is removed."""
        rpath = self._strip_protocol(rpath)
        if outfile is not None or hasattr(lpath, "write"):
            more = {} if callback is None else {"callback": callback}
            super().get_file(rpath, lpath, outfile=outfile, **more, **kwargs)
            return
        if self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        with open(lpath, "wb") as out:  # what cannot be opened is somebody's, and stays
            try:
                self.program.to_file(out, "cat", rpath)
            except BaseException:
                os.unlink(lpath)
                raise

    def _open(
        self, path: str, mode: str = "rb", block_size: int | None = None, autocommit: bool = True,
        cache_options: dict[str, Any] | None = None, **kwargs: Any,
    ) -> CkptfsFile:
        if mode != "rb":
            _refuse(path)
        kwargs.setdefault("cache_type", Blocks.name)
        return CkptfsFile(self, path, mode, block_size or _BLOCK, autocommit, cache_options=cache_options, **kwargs)

    # Nothing is written.

    def _rm(self, path: str) -> None:
        _refuse(path)

    def rm_file(self, path: str) -> None:
        _refuse(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        _refuse(path)

    def rmdir(self, path: str) -> None:
        _refuse(path)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        _refuse(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        _refuse(path)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        _refuse(path2)

    def mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any) -> None:
        _refuse(path1)

    def put_file(self, lpath: Any, rpath: str, callback: Any = None, mode: str = "overwrite", **kwargs: Any) -> None:
        _refuse(rpath)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        _refuse(path)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        _refuse(path)


class CkptfsFile(AbstractBufferedFile):
    """A file that is open to be read: the one that had its path when it was opened, or Conflict."""

    def __init__(self, fs: CkptfsFileSystem, path: str, *args: Any, **kwargs: Any) -> None:
        self._opened = fs.info(path)
        if self._opened["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        kwargs["size"] = self._opened["size"]
        super().__init__(fs, path, *args, **kwargs)
        self.details = self._opened

    def _fetch_range(self, start: int, end: int) -> bytes:
        end = min(end, self.size)
        part: bytes = self.fs._part(self.path, start, end, self._opened["changed"])
        if len(part) != end - start:
            raise Error(f"{self.path}: {len(part)} bytes from {start} on, where there are {end - start}", errno="EIO")
        return part


class Blocks(BaseCache):
    """Keeps the blocks that were used last. Blocks that are not there are fetched at once where they lie side by side: a fetch runs the program.
    Whoever reads on is given more at a time, up to half of what is kept.

    blocksize  bytes
    maxblocks  that are kept
    """

    name = "ckptfs"

    def __init__(self, blocksize: int, fetcher: Any, size: int, maxblocks: int = 32) -> None:
        super().__init__(blocksize, fetcher, size)
        self.nblocks, self.maxblocks = -(-size // blocksize), maxblocks
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._next, self._ahead = -1, 0  # the block behind those fetched last; how many were fetched unasked

    def _fetch(self, start: int | None, stop: int | None) -> bytes:
        start = start or 0
        stop = self.size if stop is None else min(stop, self.size)
        if start >= stop:
            return b""
        first, last = start // self.blocksize, (stop - 1) // self.blocksize
        parts = [part for begin, end in self._stretches(first, last) for part in self._blocks(begin, end)]
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        begin = first * self.blocksize
        return whole[start - begin:stop - begin]

    def _stretches(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Blocks that are all kept, or all to be fetched: the first one, and the one behind the last."""
        begin = first
        for n in range(first + 1, last + 2):
            if n > last or (n in self._kept) != (begin in self._kept):
                yield begin, n
                begin = n

    def _blocks(self, begin: int, end: int) -> list[bytes]:
        if begin in self._kept:
            self.hit_count += 1
            for n in range(begin, end):
                self._kept.move_to_end(n)
            return [self._kept[n] for n in range(begin, end)]
        self.miss_count += 1
        asked = (end - begin) * self.blocksize
        self._ahead = min(2 * self._ahead + 1, self.maxblocks // 2) if begin == self._next else 0
        for _ in range(self._ahead):
            if end < self.nblocks and end not in self._kept:
                end += 1
        self._next = end
        whole = super()._fetch(begin * self.blocksize, min(end * self.blocksize, self.size))
        self.total_requested_bytes += len(whole)
        for n in range(max(begin, end - self.maxblocks), end):
            at = (n - begin) * self.blocksize
            self._kept[n] = whole[at:at + self.blocksize]
        while len(self._kept) > self.maxblocks:
            self._kept.popitem(last=False)
        return [whole[:asked]]


register_cache(Blocks, clobber=True)


def _refuse(path: Any) -> NoReturn:
    raise OSError(errno.EROFS, "ckptfs:// only reads: write to the files of a mount", path)


def _join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}"


_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}


def _info(name: str, e: dict[str, Any]) -> dict[str, Any]:
    kind = stat.S_IFMT(e["mode"])
    return {
        "name": name, "type": _KINDS.get(kind, "other"), "size": e["size"] if kind == stat.S_IFREG else 0,
        "state": e.get("state", ""), "view": e.get("view", False), "islink": kind == stat.S_IFLNK,
        "mtime": datetime.fromisoformat(e["mtime"]).timestamp(), "changed": e["ctime"],
        **{k: e[k] for k in ("mode", "uid", "gid", "ino")},
    }


def _name(said: Any) -> str:
    """A name of a file: a string, or {"base64": …} if it is not UTF-8."""
    if isinstance(said, str):
        return said
    import base64

    return os.fsdecode(base64.b64decode(said["base64"]))
