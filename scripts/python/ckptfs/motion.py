"""Following a run that is being trained: its steps as they become complete, and what each of them changed."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .program import check, find

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class NewStep:
    """A step that became complete.

    path    its folder, or the file that it is
    before  the name of the complete step before it; None: it is the first one
    patch   a safetensors file of what changed from that one to it, which is made when it is opened
    """

    run: str
    step: str
    path: Path
    before: str | None
    patch: Path | None


def watch(
    run: str | os.PathLike[str], since: str | None = None, *, all: bool = False, settle: float = 2.0,
    program: str | os.PathLike[str] | None = None,
) -> Iterator[NewStep]:
    """The steps of a run (a folder in runs/ of a mount), each as soon as it is complete: its files are closed, and it has as many as the step before it. The first step
    of a run is complete when it has not changed for so many seconds (settle). Steps that are complete already are passed over, but those behind the one that is called
    since; with all none is. It goes on until the caller ends it. Error when there is no such run, or its mount goes."""
    flags = ["--settle", f"{round(settle * 1000)}ms"]
    if since is not None:
        flags += ["--from", since]
    if all:
        flags.append("--all")
    with tempfile.TemporaryFile() as said, subprocess.Popen(
        [find(program), "watch", "--json", *flags, "--", os.fspath(run)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said,
    ) as child:
        try:
            assert child.stdout is not None
            for line in child.stdout:
                s = json.loads(line)
                patch = s.get("patch")
                yield NewStep(s["run"], s["step"], Path(s["path"]), s.get("before"), None if patch is None else Path(patch))
        except BaseException:
            child.kill()
            raise
        code = child.wait()
        said.seek(0)
        check(code, said.read(), b"")


def apply(patch: str | os.PathLike[str], tensors: MutableMapping[str, torch.Tensor]) -> list[str]:
    """Changes tensors, which are those of one step by their names, to what they are in another: elements in place; a tensor that is new, or has another type or shape, is
    put in the place of the old one, and those that are gone are taken out. Returns the names of the tensors that it changed. Tensors may lie on any device. KeyError if one that
    the patch is of is not there."""
    import torch
    from safetensors import safe_open

    changed = []
    with torch.no_grad(), safe_open(os.fspath(patch), framework="pt") as f:
        for name in f.keys():
            of = name[: -len(".val")]
            if name.endswith(".idx") and name[: -len(".idx")] + ".val" in f.keys():
                continue
            if not name.endswith(".val") or of + ".idx" not in f.keys():
                new = f.get_tensor(name)
                old = tensors.get(name)
                if old is not None and old.shape == new.shape and old.dtype == new.dtype:
                    old.copy_(new)
                else:
                    tensors[name] = new if old is None else new.to(old.device)
                changed.append(name)
                continue
            t = tensors[of]
            at = f.get_tensor(of + ".idx").to(t.device).long()
            new = f.get_tensor(name).to(t.device)
            if t.dtype != new.dtype:
                raise ValueError(f"{of} is {t.dtype}, and the patch has {new.dtype}")
            if t.is_contiguous():
                bits(t.view(-1)).index_copy_(0, at, bits(new))
            else:
                whole = t.contiguous()
                bits(whole.view(-1)).index_copy_(0, at, bits(new))
                t.copy_(whole)
            changed.append(of)
        for name in json.loads((f.metadata() or {}).get("removed", "[]")):
            if tensors.pop(name, None) is not None:
                changed.append(name)
    return changed


def bits(t: torch.Tensor) -> torch.Tensor:
    """A flat tensor as integers of the same width: types of 8 bits have no index_copy_."""
    import torch

    return t.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()])
