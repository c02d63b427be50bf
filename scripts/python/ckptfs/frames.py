"""What the program answers, as pandas frames and networkx graphs. Both are imported when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import networkx
    import pandas


def need(module: str) -> Any:
    """A module that ckptfs can do without."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as e:
        if e.name != module:
            raise
        raise ImportError(f"this needs {module}: pip install {module}", name=module) from None


def frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], index: str | None = None) -> pandas.DataFrame:
    """A frame of rows that may lack some of the columns, and have others. Columns of times are in UTC."""
    pd = need("pandas")
    all_rows = list(rows)
    values = {c: [_plain(r.get(c)) for r in all_rows] for c in columns}
    out = pd.DataFrame({c: pd.Series(v, dtype=_TYPES.get(c) or _text(v)) for c, v in values.items()})
    for c in _TIMES & set(columns):
        times = [None if t is None or t.startswith("0001-") else t for t in out[c]]
        out[c] = pd.to_datetime(pd.Series(times, dtype=object), utc=True, format="ISO8601")
    return out if index is None else out.set_index(index)


def _plain(value: Any) -> Any:
    """Shapes are tuples."""
    return tuple(value) if isinstance(value, list) else value


def _text(values: Sequence[Any]) -> type[object] | None:
    """The type of a column of these: what pandas takes for text, or object where a name is no UTF-8, which Arrow has no text for."""
    try:
        for v in values:
            if isinstance(v, str):
                v.encode()
    except UnicodeEncodeError:
        return object
    return None


_TIMES = {"time", "last", "mtime", "ctime"}
_FLOATS = ("share", "max_abs", "rel_norm", "min", "max", "mean")
_COUNTS = (
    "steps", "complete", "torn", "writing", "files", "size", "bytes", "logical_bytes", "new_bytes", "stored_bytes", "plain_bytes",
    "shared_bytes", "alone_bytes", "local_bytes", "freed_bytes", "offset", "shared", "elements", "changed_elements", "special", "count", "nan", "inf", "zero",
)
# Int64 has a value for what is not known.
_TYPES: dict[str, Any] = {**dict.fromkeys(_COUNTS, "Int64"), **dict.fromkeys(_FLOATS, "float64"), **dict.fromkeys(_TIMES, object)}

DETAILS = ("state", "time", "files", "logical_bytes", "new_bytes", "stored_bytes", "plain_bytes", "shared_with",
           "shared_bytes")


def metrics(steps: Sequence[Mapping[str, Any]], details: bool) -> pandas.DataFrame:
    """The metrics of steps, in their order: a column each, of float64, NaN where a step has none; and torn. The index has numbers if all names of steps are numbers.
    details adds what else is known of a step; a column that a metric has the name of is called step_… then."""
    pd = need("pandas")
    names = [s["step"] for s in steps]
    numbers = all(n.isascii() and n.isdigit() and (n == "0" or n[0] != "0") and len(n) < 19 for n in names)
    index = pd.Index([int(n) for n in names] if numbers else names, name="step", dtype=_text(names) if names else object)
    known = sorted({m for s in steps for m in s["metrics"] or {}})
    nan = float("nan")
    columns = {m: pd.Series([float((s["metrics"] or {}).get(m, nan)) for s in steps], index=index, dtype="float64")
               for m in known}
    out = pd.DataFrame(columns, index=index)
    out["step_torn" if "torn" in known else "torn"] = pd.array([s["state"] == "torn" for s in steps], dtype=bool)
    if details:
        more = frame(steps, DETAILS)
        for c in DETAILS:
            out[f"step_{c}" if c in known else c] = more[c].array
    return out


def differences(answer: Mapping[str, Any]) -> pandas.DataFrame:
    """The tensors that differ."""
    rows: list[dict[str, Any]] = []
    for change in ("changed", "reshaped", "added", "removed"):
        for t in answer[change] or ():
            row = {"tensor": t["name"], "change": change, **t}
            if change in ("changed", "reshaped"):
                row.update(max_abs=_number(t.get("max_abs")), rel_norm=_number(t.get("rel_norm")))
            if change == "changed":
                row.setdefault("share", 0.0)
                row.setdefault("special", 0)
            rows.append(row)
    out = frame(rows, ("tensor", "change", "dtype", "shape", "share", "max_abs", "rel_norm", "special", "bytes", "dtype_a",
                       "shape_a", "file"))
    out.attrs.update({k: answer[k] for k in ("a", "b", "equal", "equal_bytes", "files", "others")})
    return out


def _number(value: Any) -> float | None:
    """NaN and the infinities are strings in JSON."""
    return None if value is None else float(value)


def tensors(answer: Mapping[str, Any], stats: bool) -> pandas.DataFrame:
    """The tensors of a file."""
    rows = []
    for t in answer["tensors"] or ():
        said = t.get("stats") or {}
        rows.append({**t, **{k: _number(v) if k in ("min", "max", "mean") else v for k, v in said.items()}})
    columns = ["name", "dtype", "shape", "bytes", "offset", "shared", "shared_with", "hash"]
    if stats:
        columns[4:4] = ["min", "max", "mean", "zero", "nan", "inf"]
    out = frame(rows, columns, index="name")
    out.attrs.update({k: v for k, v in answer.items() if k != "tensors"})
    return out


def lineage(answer: Mapping[str, Any]) -> networkx.DiGraph[str]:
    """Models, and an edge from each parent to its child."""
    nx = need("networkx")
    models: dict[int, Mapping[str, Any]] = {}
    for m in answer["models"] or ():
        for known in (m, *(m.get("chain") or ()), *(m.get("merged") or ())):
            models[known["seq"]] = {**models.get(known["seq"], {}), **known}
    newest: dict[str, int] = {}
    for seq in sorted(models):
        newest[models[seq]["path"]] = seq
    names = {seq: m["path"] if newest[m["path"]] == seq else f"{m['path']}#{seq}" for seq, m in models.items()}
    graph = nx.DiGraph()
    for seq in sorted(models):
        m = models[seq]
        graph.add_node(names[seq], **{k: m[k] for k in ("seq", "path", "time", "size", "tensors", "retired", "how")})
    for seq, m in models.items():
        if m.get("parent") in names:
            graph.add_edge(names[m["parent"]], names[seq], how=m["how"])
        for other in m.get("merged_from") or ():
            if other in names:
                graph.add_edge(names[other], names[seq], how="merged")
    for m in answer["models"] or ():
        chain = m.get("chain") or ()
        for child, elder in zip(chain, chain[1:]):
            if elder.get("skipped") and child.get("parent") not in names:
                graph.add_edge(names[elder["seq"]], names[child["seq"]], how=child["how"], skipped=elder["skipped"])
        for elder in chain[1:]:
            if elder["owned_bytes"] and "owned" not in graph.nodes[names[m["seq"]]]:
                graph.nodes[names[m["seq"]]]["owned"] = {names[e["seq"]]: e["owned_bytes"] for e in chain if e["owned_bytes"]}
    if answer.get("problem"):
        graph.graph["problem"] = answer["problem"]
    return graph
