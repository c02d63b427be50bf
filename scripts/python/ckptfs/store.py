"""A store for notebooks: its runs, steps and models, mounted or not. Everything is what the program answers at that moment; nothing is changed."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from . import frames, page
from .errors import Error, Invalid
from .mounts import place_of
from .program import Program

if TYPE_CHECKING:
    import networkx
    import numpy
    import pandas


class Store:
    """A store, by a mount, by its folder, or by a path in either.

    root  the folder that names begin in for the commands: the mount's root, or the tree in the store's folder

    Paths that its methods take are a Run or a Step, a path from the root ("runs/a/3/model.pt"), or one that begins with / and lies in the mount or the store. Error,
    if the program fails, is an OSError with a code and what to do; NotFound is a FileNotFoundError, too."""

    def __init__(
        self, path: str | os.PathLike[str], program: str | os.PathLike[str] | None = None, foreign: bool = False
    ) -> None:
        """program is the binary, by default the one that the wheel brought, or in PATH; foreign opens a store of another user, who has to be trusted."""
        self.path = Path(os.path.abspath(path))
        self.root, self._folder = place_of(path)
        self.program = Program(program, foreign)

    def __repr__(self) -> str:
        return f"Store({str(self._folder or self.root)!r})"

    def _repr_html_(self) -> str:
        try:
            return self.runs._repr_html_()
        except (Error, OSError, ValueError) as e:  # it is gone, or unmounted
            return page.failed(repr(self), e)

    @property
    def runs(self) -> Runs:
        """The runs, by name."""
        return Runs(self, {r["run"]: _run(self, r) for r in self._runs()})

    def _runs(self) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = self._ask("runs", str(self.root))["runs"] or []
        return [_exact(r, "run") for r in runs]

    def runs_frame(self) -> pandas.DataFrame:
        """The runs: steps, complete, torn, writing, logical_bytes, last (when a file of it was written last), metrics (their names)."""
        return frames.frame(({"metrics": (), **r} for r in self._runs()),
                            ("run", "steps", "complete", "torn", "writing", "logical_bytes", "last", "metrics"), "run")

    def best(self, run: str | Run, metric: str, mode: Literal["min", "max"] | None = None) -> Step:
        """The complete step of a run ("a" or "runs/a") with the best value of a metric: the least, or the greatest. Without a mode the metric's name says which, as with `ckptfs best`; Invalid where it does not."""
        if mode not in ("min", "max", None):
            raise ValueError(f"mode {mode!r} is neither min nor max")
        name = run.removeprefix("runs/") if isinstance(run, str) else run.name
        found = self._ask("best", self._run_path(name), metric, flags=(f"--mode={mode}",) if mode else ())
        return self._steps(name)[_exact(found, "step")["step"]]

    def diff(self, a: PathLike, b: PathLike) -> pandas.DataFrame:
        """The tensors that differ in two files, steps or runs (of which the last complete step is meant), a row each:

        tensor, change         its name; "changed", "reshaped", "added" or "removed"
        dtype, shape, bytes    in b, or in a where it was removed; dtype_a, shape_a: in a
        share                  of the elements that differ, 0 to 1
        max_abs, rel_norm      the greatest |b-a|, and |b-a| / |a|, of finite elements
        special                how many differ that are no finite number on one side
        file                   that has it

        attrs has how many are equal ("equal", "equal_bytes"), the pairs of files, and what else differs ("others")."""
        return frames.differences(self._ask("diff", self._in(a), self._in(b)))

    def lineage(self, path: PathLike = "runs") -> networkx.DiGraph[str]:
        """The models at or below a path, and those that they come from: a node for each, by its path, with seq, time, size, tensors, retired; an edge from a parent to
        its child, with how that is known. A model that was written over has # and its seq behind its path. Ancestors that nothing is left of may be left out: skipped
        of an edge is how many."""
        return frames.lineage(self._ask("lineage", self._in(path)))

    def du(self, *paths: PathLike, by_user: bool = False) -> pandas.DataFrame:
        """What paths, or what is in a folder, or (by_user) what each user takes; attrs["total"] is all of it, attrs["shared_with"] who needs some of it too."""
        said = self._ask("du", *(self._in(p) for p in paths or ("",)), flags=("--by-user",) if by_user else ())
        out = frames.frame(said["parts"], ("name", "files", "logical_bytes", "stored_bytes", "alone_bytes", "local_bytes", "freed_bytes"), "name")
        out.attrs["total"] = {k: v for k, v in said.items() if k not in ("parts", "shared_with")}
        out.attrs["shared_with"] = said["shared_with"]
        return out

    def find(self, path: PathLike | None = None, tensor: str | None = None, *, hash: str | None = None) -> pandas.DataFrame:
        """The tensors with the content of a tensor of a file, or with a hash (8 digits of it or more)."""
        if hash is not None and path is None and tensor is None:
            said = self._ask("find", str(self.root), flags=(f"--tensor={hash}",))
        elif hash is None and path is not None and tensor is not None:
            said = self._ask("find", flags=(f"--like={self._in(path)}:{tensor}",))
        else:
            raise ValueError("find takes a file and the name of a tensor in it, or hash=…")
        return frames.frame(said["tensors"], ("file", "name", "dtype", "shape", "bytes"))

    def show(self, path: PathLike, stats: bool = False) -> pandas.DataFrame:
        """The tensors of a file, by name: dtype, shape, bytes, offset, shared (how many other files have it), shared_with (some of them), hash. stats reads the tensors:
        min, max, mean, zero, nan, inf. attrs is what is known of the file."""
        return frames.tensors(self._ask("show", self._in(path), flags=("--stats",) if stats else ()), stats)

    def tensor(self, path: PathLike, name: str) -> numpy.ndarray[Any, Any]:
        """One tensor of a file, without reading the others. NumPy has no bfloat16 and no float8: their elements come as numbers of as many bits,
        and a UserWarning says so."""
        np = frames.need("numpy")
        out = self.program.output("cat-tensor", self._in(path), name, flags=("--npy",))
        array: numpy.ndarray[Any, Any] = np.load(io.BytesIO(out), allow_pickle=False)
        if array.dtype.kind == "u":
            said = self._ask("show", self._in(path))["tensors"] or []
            dtype = next((t["dtype"] for t in said if t["name"] == name), "")
            if dtype.startswith(("BF", "F")):
                warnings.warn(f"{name} is {dtype}, which NumPy has no type for: its elements come as the bits, in {array.dtype}", stacklevel=2)
        return array

    def ls(self, path: PathLike = "", recursive: bool = False) -> pandas.DataFrame:
        """What is in a folder, views too: state, size, mtime, view; by its path from the root."""
        said = self._ask("ls", self._in(path), flags=("--recursive",) if recursive else ())
        rows = ({"view": False, **e, "path": _name(e["path"])} for e in said["entries"])
        return frames.frame(rows, ("path", "state", "size", "mtime", "view"), "path")

    def status(self) -> dict[str, Any]:
        """What the daemon does: docs/commands.md. A UserWarning says that a file may have lost bytes."""
        try:
            said: dict[str, Any] = self._ask("status", str(self.root))
        except Error as e:
            if not isinstance(e.answer, dict):
                raise
            warnings.warn(str(e), stacklevel=2)
            said = e.answer
        return said

    def stats(self) -> dict[str, Any]:
        """What the store holds and what it costs."""
        said: dict[str, Any] = self._ask("stats", str(self.root))
        return said

    def url(self, path: PathLike) -> str:
        """What pandas and others read a file by, with fsspec, mounted or not: ckptfs:///…"""
        inside = os.path.relpath(self._in(path), self.root)
        return "ckptfs://" + os.path.normpath((self._folder or self.root) / inside)

    def open(self, path: PathLike) -> IO[bytes]:
        """A file, or a view, to read; no mount is needed."""
        frames.need("fsspec")
        from .filesystem import CkptfsFileSystem

        opened: IO[bytes] = CkptfsFileSystem(program=self.program.path, foreign=self.program.foreign).open(self._in(path), "rb")
        return opened

    def _ask(self, command: str, *paths: str, flags: tuple[str, ...] = ()) -> Any:
        return self.program.json(command, *paths, flags=flags)

    def _in(self, path: PathLike) -> str:
        """Where a command finds a path."""
        said = path.path if isinstance(path, (Run, Step)) else os.fspath(path)
        at = Path(said)
        if at.is_absolute():
            whole = Path(os.path.normpath(at))
            for folder in filter(None, (self.root, self._folder)):
                if whole == folder or folder in whole.parents:
                    return str(self.root / whole.relative_to(folder))
            real = Path(os.path.realpath(whole.parent)) / whole.name
            if self.root != real and self.root not in real.parents:
                raise Invalid(f"{said} does not lie in {self._folder or self.root}", "invalid", None, "EINVAL")
            return str(real)
        whole = Path(os.path.normpath(self.root / at))
        if whole != self.root and self.root not in whole.parents:
            raise Invalid(f"{said} leads out of {self._folder or self.root}", "invalid", None, "EINVAL")
        return str(whole)

    def _run_path(self, name: str) -> str:
        if name in ("", ".", "..") or "/" in name:
            raise Invalid(f"{name!r} is no run: it is a name in runs/", "invalid", None, "EINVAL")
        return str(self.root / "runs" / name)

    def _log(self, run: str) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = self._ask("log", self._run_path(run))["steps"] or []
        return [_exact(s, "step") for s in steps]

    def _steps(self, run: str) -> Steps:
        return Steps(run, {s["step"]: _step(self, run, s) for s in self._log(run)})


class Runs(Mapping[str, "Run"]):
    """The runs of a store, as they were when it was asked."""

    def __init__(self, store: Store, runs: dict[str, Run]) -> None:
        self.store, self._runs = store, runs

    def __getitem__(self, name: str) -> Run:
        try:
            return self._runs[name]
        except KeyError:
            raise _NoName(f"{self.store} has no run {name!r}; it has {_some(self._runs)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        return f"Runs({_some(self._runs)})"

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._runs)

    def _repr_html_(self) -> str:
        rows = [(r.name, r.step_count, r.complete, r.torn, page.size(r.logical_bytes), _when(r.last),
                 ", ".join((*r.metric_names[:page.SHOWN], *(["…"] if len(r.metric_names) > page.SHOWN else []))))
                for r in self._runs.values()]
        return page.table(repr(self.store), ("run", "steps", "complete", "torn", "size", "last", "metrics"), rows)


@dataclass(frozen=True)
class Run:
    """A run, as it was when the store was asked. Its steps and metrics are asked for when they are used."""

    store: Store = field(repr=False)
    name: str
    step_count: int
    complete: int
    torn: int
    writing: int
    logical_bytes: int
    last: datetime | None = field(repr=False)  # when a file of it was written last
    metric_names: tuple[str, ...] = field(repr=False)

    @property
    def path(self) -> str:
        """From the root."""
        return f"runs/{self.name}"

    @property
    def steps(self) -> Steps:
        """The steps, by name, in their order."""
        return self.store._steps(self.name)

    def metrics(self, details: bool = False) -> pandas.DataFrame:
        """The metrics by step: a column each, NaN where a step has none; and torn, whether the step is. The index has numbers if all steps have numbers for names. details adds state, time, files,
        logical_bytes, new_bytes (that no step before it has), stored_bytes (what these take), plain_bytes (not packed), shared_with, shared_bytes. A UserWarning says
        why metrics of steps cannot be read."""
        steps = self.store._log(self.name)
        unread = [s for s in steps if s.get("problem")]
        if unread:
            lines = [f"{self.path}/{s['step']}: {s['problem']}" for s in unread[:page.SHOWN]]
            if len(unread) > len(lines):
                lines.append(f"and {len(unread) - len(lines)} more steps")
            warnings.warn("\n".join(lines), stacklevel=2)
        return frames.metrics(steps, details)

    def best(self, metric: str, mode: Literal["min", "max"] | None = None) -> Step:
        """The complete step with the best value of a metric: see Store.best."""
        return self.store.best(self.name, metric, mode)

    def _repr_html_(self) -> str:
        try:
            return self.steps._repr_html_()
        except (Error, OSError, ValueError) as e:
            return page.failed(repr(self), e)


class Steps(Mapping[str, "Step"]):
    """The steps of a run, as they were when the store was asked. A number is as good as its name."""

    def __init__(self, run: str, steps: dict[str, Step]) -> None:
        self.run, self._steps = run, steps

    def __getitem__(self, name: str | int) -> Step:
        try:
            return self._steps[str(name)]
        except KeyError:
            raise _NoName(f"run {self.run!r} has no step {name!r}; it has {_some(self._steps)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)

    def __repr__(self) -> str:
        return f"Steps({self.run!r}: {_some(self._steps)})"

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._steps)

    def _repr_html_(self) -> str:
        known = sorted({m for s in self._steps.values() for m in s.metrics})[:page.SHOWN]
        rows = [(s.name, s.state, page.size(s.logical_bytes), page.size(s.new_bytes),
                 *(f"{s.metrics[m]:.6g}" if m in s.metrics else "" for m in known)) for s in self._steps.values()]
        return page.table(f"run {self.run}", ("step", "state", "size", "new", *known), rows)


@dataclass(frozen=True)
class Step:
    """A step, as it was when the store was asked.

    new_bytes     of its chunks that no step before it has
    stored_bytes  what these take as they are stored
    plain_bytes   of files that are not packed: nothing is known of what they share
    shared_with   the step before it that has most of its bytes, shared_bytes of them
    problem       why metrics are missing, or None
    """

    store: Store = field(repr=False)
    run: str
    name: str
    state: str  # "complete", "writing", "torn", "arriving"
    time: datetime | None = field(repr=False)
    files: int = field(repr=False)
    logical_bytes: int = field(repr=False)
    new_bytes: int = field(repr=False)
    stored_bytes: int = field(repr=False)
    plain_bytes: int = field(repr=False)
    shared_with: str | None = field(repr=False)
    shared_bytes: int = field(repr=False)
    metrics: dict[str, float]
    problem: str | None = field(repr=False)

    @property
    def path(self) -> str:
        """From the root."""
        return f"runs/{self.run}/{self.name}"

    def __fspath__(self) -> str:
        """The step's folder in the mount. Without a mount there is none: open reads."""
        if self.store._folder is not None:
            raise Invalid(f"{self.store} was not opened by a mount, and its files have no path", "invalid",
                          f"read them by Step.open, or by the address {self.url('NAME')}", "EINVAL")
        return str(self.store.root / self.path)

    def open(self, name: str) -> IO[bytes]:
        """A file, or a view, of the step, to read; no mount is needed."""
        return self.store.open(f"{self.path}/{name}")

    def url(self, name: str) -> str:
        """The address of a file of the step for fsspec."""
        return self.store.url(f"{self.path}/{name}")

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [("state", self.state), ("written", _when(self.time)), ("files", self.files),
                                          ("size", page.size(self.logical_bytes)), ("new", page.size(self.new_bytes))]
        rows += [(m, f"{v:.6g}") for m, v in self.metrics.items()]
        if self.problem:
            rows.append(("problem", self.problem))
        return page.table(self.path, ("", ""), rows)


class _NoName(KeyError):
    """A KeyError that is a sentence."""

    def __str__(self) -> str:
        return str(self.args[0])


PathLike = str | os.PathLike[str] | Run | Step


def _run(store: Store, r: Mapping[str, Any]) -> Run:
    return Run(store, r["run"], r["steps"], r["complete"], r["torn"], r["writing"], r["logical_bytes"],
               _time(r["last"]), tuple(r.get("metrics") or ()))


def _step(store: Store, run: str, s: Mapping[str, Any]) -> Step:
    metrics = {m: float(v) for m, v in (s["metrics"] or {}).items()}
    return Step(store, run, s["step"], s["state"], _time(s["time"]), s["files"], s["logical_bytes"], s["new_bytes"],
                s["stored_bytes"], s["plain_bytes"], s.get("shared_with"), s.get("shared_bytes", 0), metrics,
                s.get("problem"))


def _name(said: Any) -> str:
    """A name of a file: a string, or {"base64": …} if it is not UTF-8."""
    if isinstance(said, str):
        return said
    import base64

    return os.fsdecode(base64.b64decode(said["base64"]))


def _exact(said: dict[str, Any], key: str) -> dict[str, Any]:
    """An answer with a name as os.fsdecode has it, also if that is no UTF-8."""
    exact = said.pop("exact_name", None)
    return said if exact is None else {**said, key: _name(exact)}


def _time(said: str) -> datetime | None:
    return None if said.startswith("0001-") else datetime.fromisoformat(said)


def _when(time: datetime | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S") if time else ""


def _some(names: Mapping[str, Any]) -> str:
    """The first names, and how many there are besides."""
    shown = list(names)[:8]
    more = f", and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(map(repr, shown)) + more if shown else "none"
