"""Which mount, or which store, a path lies in."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .errors import NotStore

TREE = "tree"  # the folder of a store that has the names of its files


def mount_of(path: str | os.PathLike[str] | None = None) -> Path:
    """The root of the ckptfs mount that path lies in; without a path, of the only one that there is."""
    mounts = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        for line in f:
            left, right = line.split(" - ", 1)
            if right.split()[0] == "fuse.ckptfs":
                mounts.append(Path(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), left.split()[4])))
    if path is not None:
        path = Path(os.path.realpath(path))
        inside = [m for m in mounts if m == path or m in path.parents]
        if not inside:
            raise ValueError(f"{path} is in no ckptfs mount")
        return max(inside, key=lambda m: len(m.parts))
    if len(mounts) != 1:
        raise ValueError(f"there are {len(mounts)} ckptfs mounts: say which, by a path in it")
    return mounts[0]


def place_of(path: str | os.PathLike[str]) -> tuple[Path, Path | None]:
    """The folder that a store's files have their names below, for the commands: a mount's root, or the tree of a store's folder; and the store's folder if it was
    found by that. NotStore if path lies in neither."""
    try:
        return mount_of(path), None
    except (ValueError, OSError):  # OSError: there is no /proc here
        pass
    real = Path(os.path.realpath(path))
    found = None
    for folder in (real, *real.parents):
        if _is_store(folder):
            found = folder  # what lies in the tree of a store may look like another one
    if found is None:
        raise NotStore(f"{path}: in no ckptfs mount, and no store's folder", "not_store",
                       "`ckptfs mount STORE MOUNTPOINT` mounts (and makes) one", "ENOENT", 3)
    return found / TREE, found


def _is_store(folder: Path) -> bool:
    try:
        with open(os.open(folder / "format", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as f:
            return f.read(7) == b"ckptfs "
    except PermissionError:  # another user's; the program says so
        return (folder / TREE).is_dir()
    except OSError:
        return False
