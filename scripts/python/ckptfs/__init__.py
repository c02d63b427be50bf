"""What files in a ckptfs mount cannot say in one line. Pure Python: over the mount's own files, or, in Store, over what the program answers. torch is needed by
graph, match and transfer alone; pandas, networkx and numpy by what of Store returns theirs; fsspec by ckptfs:// alone.

    import ckptfs

    ckptfs.record("/mnt/ckpt/runs/a/3", metrics={"val_loss": 0.31}, parent="runs/a/2", model=net)
    torch.load(ckptfs.best("/mnt/ckpt/runs/a", "val_loss") / "model.pt")

    m = ckptfs.match(net)                  # the stored model that net has most in common with, or None
    frozen = ckptfs.transfer(net, m)       # its weights, where they fit; the names of what was loaded

    store = ckptfs.Store("/mnt/ckpt")      # mounted or not: runs, metrics and differences as pandas frames
    store.runs["a"].metrics()["val_loss"].plot()
"""

from __future__ import annotations

import contextlib
import functools
import html
import itertools
import json
import os
import re
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .errors import (
    Busy, Conflict, Corrupt, Denied, Error, Invalid, NeedsRecovery, Newer, NoProgram, NotFound, NotStore, Refused,
    Unavailable, Unreachable,
)
from .motion import NewStep, apply, watch
from .mounts import mount_of
from .store import Run, Runs, Step, Steps, Store

if TYPE_CHECKING:
    import torch
    import torch.fx

Ties = dict[str, list[str]]  # the other names of tensors that have several

__version__ = "0.1.0"
__all__ = [
    "Busy", "Conflict", "Corrupt", "Denied", "Error", "Invalid", "Match", "NeedsRecovery", "NewStep", "Newer", "NoProgram", "NotFound", "NotStore", "Refused", "Run", "Runs",
    "Step", "Steps", "Store", "Unavailable", "Unreachable", "apply", "best", "derive", "graph", "match", "mount_of", "record", "transfer", "watch",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__doc__", "__name__", "__version__"])


def best(run: str | os.PathLike[str], metric: str, mode: Literal["min", "max"] | None = None) -> Path:
    """The directory of the complete step of a run (a folder below runs/) with the best value of a metric. The mode says which end is good; without one the metric's name does, as with `ckptfs best`: of a loss or an error the least is best, of an accuracy, a reward or a score the greatest; ValueError where it does not say it. A run "runs/NAME" counts
    from the root of the only mount, unless the working folder has it. A step that not everybody
    may read who may read the run takes no part, as with the links in .ckptfs/best; `ckptfs best` looks at all.
    FileNotFoundError when there is no such run, or no complete step of it has the metric."""
    if mode not in ("min", "max", None):
        raise ValueError(f"mode {mode!r} is neither min nor max")
    end = mode or _mode_of(metric)
    said = Path(run)
    if said.parts[:1] == ("runs",) and not said.exists():
        said = mount_of() / said
    run = Path(os.path.realpath(said))
    root = mount_of(run)
    if run.parent != root / "runs":
        raise ValueError(f"{run} is no run: it is to be a folder in {root / 'runs'}")
    name = metric.replace("%", "%25").replace("/", "%2F")
    if name.startswith("."):
        name = "%2E" + name[1:]
    links = root / ".ckptfs" / "best" / run.name
    try:
        found = Path(os.path.normpath(links / os.readlink(links / f"{name}.{end or 'min'}")))
    except FileNotFoundError:
        if not run.is_dir():
            raise FileNotFoundError(f"there is no run {run}; `ckptfs runs {root}` lists those that there are") from None
        raise FileNotFoundError(f"{run}: no complete step has metric {metric!r}; `ckptfs log {run}` shows those that there are") from None
    if end is None:
        raise ValueError(f"the name of {metric!r} does not say which end is good: mode='min' or mode='max' does")
    return found


# What words of metrics begin with of which less, or more, is good, or neither: those of `ckptfs best`.
_WORSE = ("loss", "err", "mape", "nll", "perplexity", "ppl", "mae", "mse", "rmse", "wer", "fid", "bpb", "bpc", "xent", "crossentropy")
_BETTER = ("acc", "f1", "auc", "bleu", "rouge", "reward", "score", "quality", "precision", "recall", "r2", "map", "iou", "psnr", "ssim", "auroc", "miou", "dice", "ndcg", "mrr",
           "mcc", "chrf", "meteor")
_NEITHER = ("scale", "coef", "threshold", "accum", "time", "second", "fidelity")


def _mode_of(metric: str) -> Literal["min", "max"] | None:
    """Which end of a metric is good by its name, as for `ckptfs best`; None: the name does not say it."""
    humps = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", metric)
    words = re.split(r"[/._\- @:]+", f"{metric} {humps}".lower())
    if any(w.startswith(_NEITHER) for w in words):
        return None
    if any(w.startswith(_WORSE) for w in words):
        return "min"
    return "max" if any(w.startswith(_BETTER) for w in words) else None


def record(
    step: str | os.PathLike[str],
    metrics: Mapping[str, float] | None = None,
    parent: str | os.PathLike[str] | Match | None = None,
    merged_from: Iterable[str | os.PathLike[str]] | None = None,
    model: torch.nn.Module | None = None,
) -> None:
    """Writes beside a checkpoint what is known of it: metrics (added to those of metrics.json), where it came from (the Match whose weights it began with; or a step or a
    file, relative to the mount's root or, with a dot in front, to the step), and the architecture of a torch module whose state_dict it is, or has in it. ValueError for a
    metric that can have no such name, and for a parent that is no other step of the mount and no file in one, FileNotFoundError for one that is not there; nothing is written then. A UserWarning says that
    the step lies in no mount, where nobody looks at what is written."""
    step = Path(step)
    try:
        mount_of(step)
    except (ValueError, OSError) as e:  # OSError: there is no /proc here
        if parent is None and merged_from is None:
            warnings.warn(f"{e}: what is recorded there is seen by no ckptfs", stacklevel=2)
    if parent is not None:
        origin = _origin(step, parent)
    if merged_from is not None:
        merged_from = [_origin(step, p) for p in merged_from]
    for name in metrics or ():
        if not isinstance(name, str) or not 0 < len(name.encode()) <= 255 or any(c < " " or c == "\x7f" for c in name):
            raise ValueError(f"metric {name!r}: a name has 1 to 255 bytes and no control characters")
    step.mkdir(parents=True, exist_ok=True)
    if metrics is not None:
        all_metrics = _read_json(step / "metrics.json")
        all_metrics.update({k: float(v) for k, v in metrics.items()})
        _write_json(step / "metrics.json", all_metrics)
    if parent is not None or merged_from is not None:
        lineage = _read_json(step / "lineage.json")
        if parent is not None:
            lineage["parent"] = origin
            lineage["how"] = "transfer" if isinstance(parent, Match) else "declared"
            lineage.pop("tensors", None)
            lineage.pop("tied", None)
            if isinstance(parent, Match):
                lineage["tensors"] = {new: old for new, old in parent.tensors.items() if new != old}
                lineage["tied"] = {new: parent.tied[new] for new in lineage["tensors"] if new in parent.tied}
        if merged_from is not None:
            lineage["merged_from"] = merged_from
        _write_json(step / "lineage.json", lineage)
    if model is not None:
        _write_json(step / "arch.json", graph(model))


def _origin(step: str | os.PathLike[str], parent: str | os.PathLike[str] | Match) -> str:
    """The path of a parent of a step, from the mount's root. The model of a Match may be gone by now."""
    root = mount_of(step)
    step = Path(os.path.realpath(step))
    said = os.fspath(parent)
    if not isinstance(said, str) or not said:
        raise ValueError(f"parent {parent!r} is no path")
    path = Path(os.path.realpath((step if said.split("/")[0] in (".", "..") else root) / said))
    if root not in path.parents or path.relative_to(root).parts[0] != "runs" or len(path.relative_to(root).parts) < 3 or path == step:
        raise ValueError(f"parent {said!r} is no other step below {root / 'runs'}, and no file in one")
    if not isinstance(parent, Match) and not path.exists():
        raise FileNotFoundError(f"parent {said!r}: there is no {path}")
    return path.relative_to(root).as_posix()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as f:
            value = json.load(f)
    except FileNotFoundError:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no object, and stays as it is")
    return value


def _write_json(path: Path, value: dict[str, Any]) -> None:
    """Whole or not at all."""
    with _whole(path) as out:
        _write_all(out, json.dumps(value).encode())


def derive(parent: str | os.PathLike[str], step: str | os.PathLike[str], changed: Mapping[str, Any]) -> None:
    """Writes a checkpoint that differs from its parent in some tensors: of each safetensors file in the directory parent a file of the same name in the directory
    step, another one, and that it comes from there. changed is {name: tensor}, of NumPy or torch, of the type and shape that the parent's has. A file in which
    nothing changed is cloned, which costs no bytes on a mount: a checkpoint in several files, the layers in their order, is written as far as it changed. Other
    files than safetensors are not looked at. KeyError when a tensor is in none of them, ValueError when one does not fit, or parent is no step, FileExistsError when the step has one
    of the files; nothing is written then. Each file appears when it is whole."""
    parent, step = Path(parent).absolute(), Path(step)
    _origin(step, parent)
    left = set(changed)
    sources = []
    for source in sorted(parent.glob("*.safetensors")):
        with open(source, "rb", buffering=0) as f:
            head = _read_all(f, 8)
            text = _read_all(f, _header_size(head, source))
        header = json.loads(text)
        header.pop("__metadata__", None)
        ours = left & header.keys()
        left -= ours
        for name in ours:
            _check(changed[name], header[name], name)
        sources.append((source, head + text, header, ours))
    if left:
        raise KeyError(f"{parent} has no tensor {sorted(left)[0]!r}")
    step.mkdir(parents=True, exist_ok=True)
    if step.samefile(parent):
        raise ValueError(f"{step} is the parent itself")
    for source, *_ in sources:
        if (step / source.name).exists():
            raise FileExistsError(f"{step / source.name} is there, and stays as it is")
    for source, head, header, ours in sources:
        with open(source, "rb", buffering=0) as f, _whole(step / source.name) as out:
            if not ours:
                _clone(f, out)
                continue
            _write_all(out, head)
            for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
                begin, end = entry["data_offsets"]
                if name in ours:
                    _write_all(out, _bytes(changed[name]))
                else:
                    f.seek(len(head) + begin)
                    _write_all(out, _read_all(f, end - begin))
    record(step, parent=parent)


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[FileIO]:
    """A file to be written, which gets its name when that went well."""
    tmp = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(tmp, "wb", buffering=0) as out:
            yield out
        os.replace(tmp, path)
    finally:
        tmp.unlink(missing_ok=True)


def _clone(f: FileIO, out: FileIO) -> None:
    at, size = 0, os.fstat(f.fileno()).st_size
    while at < size:
        n = os.copy_file_range(f.fileno(), out.fileno(), size - at, at, at)
        if not n:
            raise ValueError(f"{f.name} is cut short")
        at += n


def _header_size(head: bytes | bytearray, path: Path) -> int:
    n = int.from_bytes(head, "little")
    if n > 100 << 20:
        raise ValueError(f"{path}: a header of {n} bytes")
    return n


def _check(t: Any, entry: dict[str, Any], name: str) -> None:
    """Whether a tensor is what a safetensors header says of it."""
    if not hasattr(t, "dtype") or not hasattr(t, "shape"):
        raise ValueError(f"{name}: {type(t).__name__} is no tensor")
    if _code(t.dtype) != entry["dtype"] or list(t.shape) != entry["shape"]:
        raise ValueError(f"{name}: the parent's is {entry['dtype']} {entry['shape']}, this is {t.dtype} {list(t.shape)}")


def _bytes(t: Any) -> memoryview | bytes:
    if hasattr(t, "detach"):
        import torch

        t = t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return memoryview(t if t.flags.c_contiguous else t.copy(order="C")).cast("B") if t.size else b""


def _write_all(f: FileIO, data: bytes | bytearray | memoryview) -> None:
    left = memoryview(data)
    while left:
        left = left[f.write(left):]


def _read_all(f: FileIO, n: int) -> bytearray:
    out = bytearray(n)
    at = 0
    while at < n:
        k = f.readinto(memoryview(out)[at:])
        if not k:
            raise ValueError(f"{f.name} is cut short")
        at += k
    return out


_DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32", "int64": "I64", "uint64": "U64",
    "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64", "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
}


def _code(dtype: object) -> str | None:
    return _DTYPES.get(str(dtype).removeprefix("torch."))


def graph(model: torch.nn.Module) -> dict[str, Any]:
    """The architecture of a torch module as a GRAPH.json (docs/match.md). The module is traced (torch.fx); one that cannot be, because its control flow depends on
    data, is taken for the chain of its layers in the order in which they were registered: the modules that hold parameters themselves, or no other module."""
    import torch.fx

    before = set(vars(model))
    try:
        traced = torch.fx.symbolic_trace(model)
    except Exception:  # whatever the module's own code raises when it meets a proxy
        return {"v": 1, "nodes": _chain(model, "model", "", [], _ties(model))}
    finally:
        for name in set(vars(model)) - before:  # the tracer leaves tensors that it met
            delattr(model, name)
    return _traced(model, traced)


def _ties(model: torch.nn.Module) -> Ties:
    """{name: the other names of the same tensor}: savers differ in which of them they write."""
    import torch

    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, t in model.state_dict(keep_vars=True).items():
        if isinstance(t, torch.Tensor) and t.layout == torch.strided:
            groups.setdefault((t.data_ptr() or id(t), t.dtype, t.shape, t.stride()), []).append(name)
    return {name: [n for n in names if n != name] for names in groups.values() if len(names) > 1 for name in names}


def _param(name: str, t: Any, ties: Ties) -> dict[str, Any] | str:
    code = _code(getattr(t, "dtype", None))
    known: dict[str, Any] = {} if code is None else {"dtype": code, "shape": list(t.shape)}
    if name in ties:
        known["tied"] = ties[name][:64]
    return {"name": name, **known} if known else name


def _layer(ident: str, module: torch.nn.Module, prefix: str, inputs: list[str], ties: Ties) -> dict[str, Any]:
    """A module without those in it."""
    node: dict[str, Any] = {"id": ident, "op": type(module).__name__, "cfg": _settings(module), "in": inputs}
    params = [_param(f"{prefix}.{name}" if prefix else name, t, ties) for name, t in module.state_dict(keep_vars=True).items() if "." not in name]
    if params:
        node["params"] = params
    return node


def _settings(module: torch.nn.Module) -> dict[str, Any]:
    """What a layer does but for its parameters: what it prints of itself, and of torch's own that print nothing, like attention, their attributes."""
    import torch

    cfg = {"repr": module.extra_repr()}
    if type(module).extra_repr is torch.nn.Module.extra_repr and type(module).__module__.startswith("torch."):
        cfg.update({name: repr(value) for name, value in vars(module).items() if name[0] != "_" and name != "training" and isinstance(value, (bool, int, float, str))})
    return cfg


def _chain(module: torch.nn.Module, ident: str, prefix: str, inputs: list[str], ties: Ties) -> list[dict[str, Any]]:
    """The layers in a module, in the order in which they were registered; the last is called ident."""
    nodes: list[dict[str, Any]] = []
    for name, m in module.named_modules():
        layer = _layer(f"{ident}.{name}" if name else ident, m, ".".join(filter(None, (prefix, name))), [nodes[-1]["id"]] if nodes else inputs, ties)
        if "params" in layer or next(m.children(), None) is None:
            nodes.append(layer)
    if len(nodes) > 1 and nodes[0]["id"] == ident:  # it holds parameters itself
        nodes[0]["id"] = f"{ident}."
        nodes[1]["in"] = [nodes[0]["id"]]
    nodes[-1]["id"] = ident
    return nodes


_COMMUTING = {"add": "Add", "mul": "Mul", "iadd": "Add", "imul": "Mul"}


def _traced(model: torch.nn.Module, traced: torch.fx.GraphModule) -> dict[str, Any]:
    import torch.fx

    nodes: list[dict[str, Any]] = []
    ties = _ties(model)
    for n in traced.graph.nodes:
        if n.op == "output":
            continue
        inputs = [i.name for i in _inputs(n)]
        if n.op == "placeholder":
            nodes.append({"id": n.name, "op": "Input"})
        elif n.op == "call_module":
            nodes += _chain(traced.get_submodule(n.target), n.name, n.target, inputs, ties)
        elif n.op == "get_attr":
            nodes.append({"id": n.name, **_constant(model, n.target, functools.reduce(getattr, n.target.split("."), traced), ties)})
        else:
            op = n.target if isinstance(n.target, str) else getattr(n.target, "__name__", str(n.target))
            fixed = torch.fx.node.map_arg((n.args, n.kwargs), lambda _: "@")
            node = {"id": n.name, "op": op, "cfg": {"args": repr(fixed)}, "in": inputs}
            if op in _COMMUTING and len(n.args) == 2 and len(inputs) == 2:
                node.update(op=_COMMUTING[op], comm=True)
            nodes.append(node)
    return {"v": 1, "nodes": nodes}


def _constant(model: torch.nn.Module, name: str, t: torch.Tensor, ties: Ties) -> dict[str, Any]:
    """A tensor that the trace reads: one of the state, a part of such a one, or whatever the code made of them."""
    import torch

    state = model.state_dict(keep_vars=True)
    if name in state:
        return {"op": "Parameter", "params": [_param(name, t, ties)]}
    cfg = {"dtype": str(t.dtype), "shape": list(t.shape)}
    for whole, s in state.items():
        if isinstance(s, torch.Tensor) and s.layout == t.layout == torch.strided and s.dtype == t.dtype and s.untyped_storage().data_ptr() == t.untyped_storage().data_ptr() != 0:
            return {"op": "Part", "cfg": {**cfg, "stride": list(t.stride()), "offset": t.storage_offset() - s.storage_offset()}, "params": [_param(whole, s, ties)]}
    return {"op": "Constant", "cfg": cfg}


def _inputs(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The nodes that a node takes, in the order of its arguments; one that comes twice is there twice."""
    import torch.fx

    out: list[torch.fx.Node] = []

    def take(n: torch.fx.Node) -> torch.fx.Node:
        out.append(n)
        return n

    torch.fx.node.map_arg((node.args, node.kwargs), take)
    return out


class Match:
    """The stored model with the longest prefix in common with an architecture.

    path     of its file
    length   layers in common
    exact    no stored model has more in common; False: the search was cut short
    tensors  {name in the new model: name in the file}
    tied     {name in the new model: other names of the same tensor there}
    pinned   a safetensors file of its tensors, which is there until the Match is closed or forgotten, even if the model is removed
    answer   all that ckptfs said
    """

    def __init__(self, root: Path, answer: dict[str, Any], query: Path | None = None, asked: dict[str, Any] | None = None) -> None:
        m = answer["match"]
        self.path: Path = root / m["path"]
        self.pinned: Path | None = root / m["pinned"] if query and m.get("pinned") else None
        self._query = query
        self.length: int = m["length"]
        self.exact: bool = m["exact"]
        self.tensors: dict[str, str] = {t["new"]: t["stored"] for t in m["tensors"]}
        self.tied: dict[str, list[str]] = {p["name"]: p["tied"] for node in (asked or {}).get("nodes", ()) for p in node.get("params", ()) if isinstance(p, dict) and "tied" in p}
        self.answer = answer

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def close(self) -> None:
        """Drops the pin."""
        query, self._query, self.pinned = self._query, None, None
        if query:
            query.unlink(missing_ok=True)

    def __enter__(self) -> Match:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # the mount is gone, or Python is
            pass

    def __repr__(self) -> str:
        return f"Match({str(self.path)!r}, length={self.length}, tensors={len(self.tensors)})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the file, and which tensor of it each of the model's is."""
        shown = 20
        rows = "".join(f"<tr><td>{html.escape(n)}</td><td>{html.escape(s)}</td></tr>" for n, s in itertools.islice(self.tensors.items(), shown))
        more = f"<p>and {len(self.tensors) - shown} more</p>" if len(self.tensors) > shown else ""
        exact = "" if self.exact else " or more"
        return (
            f"<p><b>{html.escape(str(self.path))}</b>: {self.length}{exact} layers in common, {len(self.tensors)} tensors</p>"
            f"<table><thead><tr><th>model</th><th>file</th></tr></thead><tbody>{rows}</tbody></table>{more}"
        )


def match(model: torch.nn.Module | dict[str, Any], at: str | os.PathLike[str] | None = None) -> Match | None:
    """The stored model that a torch module, or a GRAPH.json as a dict, has most in common with: a Match, or None, with a UserWarning, when none has a root in
    common, or no tensor of those that the graph names. at is a path in the mount to look in; without it there has to be one mount. Models that were saved a
    moment ago may be passed over; `ckptfs sync` makes them known."""
    root = mount_of(at)
    query = root / ".ckptfs" / "query" / uuid.uuid4().hex
    found = None
    try:
        asked = model if isinstance(model, dict) else graph(model)
        with open(query, "w", encoding="utf-8") as f:
            json.dump(asked, f)
        with open(query, encoding="utf-8") as f:
            answer = json.load(f)
        found = Match(root, answer, query, asked) if _useful(answer["match"], asked) else None
    finally:
        if found is None:
            query.unlink(missing_ok=True)
    if found is None:
        warnings.warn(f"no packed model below {root / 'runs'} has anything in common with this one; one that was just saved counts from `ckptfs sync {root}` on",
                      stacklevel=2)
    return found


def _useful(answer: dict[str, Any] | None, asked: dict[str, Any]) -> bool:
    """Whether there is a match, of tensors if the graph names any: a graph may be of layers alone."""
    return answer is not None and bool(answer["tensors"] or not any(node.get("params") for node in asked.get("nodes", ())))


def transfer(model: torch.nn.Module, match: Match | None, freeze: bool = False) -> list[str]:
    """Loads the tensors that a match names into a torch module and returns their names in it, sorted; with freeze, those that are parameters are not trained.
    Only these tensors are read. A tensor of another shape is left out. Nothing is loaded from None; a UserWarning says so."""
    import torch

    if match is None:
        warnings.warn("there is no match, and nothing is loaded", stacklevel=2)
        return []
    state = model.state_dict(keep_vars=True)
    loaded = []
    with _tensors_of(match.pinned if match.pinned and match.pinned.exists() else match.path) as stored, torch.no_grad():
        for new, old in match.tensors.items():
            target = state.get(new)
            if target is None or not stored.has(old):
                continue
            t = stored.get(old)
            if t.shape != target.shape:
                continue
            target.copy_(t)
            loaded.append(new)
            if freeze and isinstance(target, torch.nn.Parameter):
                target.requires_grad_(False)
    return sorted(loaded)


class _Shards:
    """The tensors of a set of files, by its index."""

    def __init__(self, index: Path) -> None:
        with open(index, encoding="utf-8") as f:
            self.files: dict[str, str] = json.load(f)["weight_map"]
        self.dir = index.parent
        self.open: dict[str, _Tensors] = {}

    def __enter__(self) -> _Shards:
        return self

    def __exit__(self, *what: object) -> None:
        for shard in self.open.values():
            shard.__exit__(*what)

    def _shard(self, name: str) -> _Tensors:
        file = self.files[name]
        if file not in self.open:
            self.open[file] = _Tensors(self.dir / file).__enter__()
        return self.open[file]

    def has(self, name: str) -> bool:
        return name in self.files and self._shard(name).has(name)

    def get(self, name: str) -> torch.Tensor:
        return self._shard(name).get(name)


def _tensors_of(path: Path) -> _Shards | _Tensors:
    return _Shards(path) if path.suffix == ".json" else _Tensors(path)


class _Tensors:
    """The tensors of a file, read one by one: of a safetensors file, or of the one that the mount shows beside a torch file."""

    def __init__(self, path: Path) -> None:
        view = path.with_suffix(".safetensors")
        self.path = view if view.exists() else path
        self.file: FileIO | None = None
        self.state: dict[str, Any] = {}
        self.header: dict[str, Any] = {}

    def __enter__(self) -> _Tensors:
        import torch

        if self.path.suffix != ".safetensors":
            self.state = torch.load(self.path, map_location="cpu", weights_only=True, mmap=True)
            return self
        self.file = open(self.path, "rb", buffering=0)
        n = _header_size(_read_all(self.file, 8), self.path)
        self.header = json.loads(_read_all(self.file, n))
        self.start = 8 + n
        self.types = {code: getattr(torch, name) for name, code in _DTYPES.items() if hasattr(torch, name)}
        return self

    def __exit__(self, *_: object) -> None:
        if self.file:
            self.file.close()

    def has(self, name: str) -> bool:
        return name in (self.header if self.file else self.state) and name != "__metadata__"

    def get(self, name: str) -> torch.Tensor:
        import torch

        if not self.file:
            return self.state[name]
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        self.file.seek(self.start + begin)
        if begin == end:
            return torch.empty(entry["shape"], dtype=self.types[entry["dtype"]])
        return torch.frombuffer(_read_all(self.file, end - begin), dtype=self.types[entry["dtype"]]).reshape(entry["shape"])
