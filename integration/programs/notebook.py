"""notebook.py PACKAGE BIN ROOT URL WHERE: looks at a store as a notebook does, by ROOT, a mount or a store's folder, of which URL is the ckptfs:// address. Of the mount that WHERE
is, or was, sums.json has the SHA-256 of every file. Prints ok."""

import hashlib
import html.parser
import io
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import unittest.mock
import warnings
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import ckptfs  # noqa: E402

assert not {"pandas", "networkx", "fsspec"} & {m for m in sys.modules if "ckptfs" in (getattr(sys.modules[m], "__package__", "") or "")}
BIN, ROOT, URL = sys.argv[2:5]
sums = json.loads(Path(sys.argv[5]).read_bytes())


def fails(kind, do, *words):
    try:
        do()
    except kind as e:
        assert all(w in str(e) for w in words), e
        return e
    raise SystemExit(f"no {kind.__name__}")


def asked(*args):
    return json.loads(subprocess.run([BIN, "--json", *args], check=True, stdout=subprocess.PIPE).stdout)


def page(thing):
    """What a notebook shows: the texts of it, and no tag that came from a name."""
    texts, tags = [], set()
    p = html.parser.HTMLParser()
    p.handle_data = texts.append
    p.handle_starttag = lambda tag, attrs: tags.add(tag)
    p.feed(thing._repr_html_())
    assert tags <= {"p", "b", "table", "thead", "tbody", "tr", "td", "th"}, tags
    return texts


# docs/notebooks.md names everything, and nothing that is not there.
documented = Path(sys.argv[1], "../../docs/notebooks.md").read_text()
tables = {title: set(re.findall(r"`(\w+)", " ".join(line.split("|")[1] for line in rows.splitlines())))
          for title, rows in re.findall(r"\| of a `?(\w+)`? \| what it is \|\n\|---\|---\|\n((?:\|.*\n)+)", documented)}
assert set(tables) == {"Store", "run", "step"}, tables
for title, kind in (("Store", ckptfs.Store), ("run", ckptfs.Run), ("step", ckptfs.Step)):
    public = {n for n in {*vars(kind), *getattr(kind, "__dataclass_fields__", ())} if n[0] != "_"}
    told = tables[title] - {"os", "hash", "path", "recursive", "run", "metric", "mode", "file", "tensor"}
    assert told - {"metrics"} <= public | {"tensor"}, (title, told - public)
    missing = {n for n in public if callable(getattr(kind, n, None)) or isinstance(getattr(kind, n, None), property)} - tables[title] - {"path"}
    assert not missing, (title, missing)
for name in ckptfs.__all__:
    if isinstance(getattr(ckptfs, name), type) and issubclass(getattr(ckptfs, name), ckptfs.Error):
        assert f"`{name}`" in documented or f"`ckptfs.{name}`" in documented, name

store = ckptfs.Store(ROOT, program=BIN)
mounted = Path(ROOT, "runs").exists()
HOSTILE = "<script>alert(1)</script>&\"'" .replace("/", "_")

# Without the others, nothing but what returns theirs fails, and says what to install.
for module, do in (("pandas", store.runs_frame), ("networkx", store.lineage), ("numpy", lambda: store.tensor("runs/a/1/model.safetensors", "head")), ("fsspec", lambda: store.open("runs/a/1/metrics.json"))):
    with unittest.mock.patch.dict(sys.modules, {module: None}):
        fails(ImportError, do, f"pip install {module}")

# Runs and steps.
assert list(store.runs) == [HOSTILE, "a", "b"] and len(store.runs) == 3, store.runs
a = store.runs["a"]
said = asked("log", f"{store.root}/runs/a")["steps"]
frame = a.metrics()
assert list(frame.index) == [1, 2, 3, 10] and frame.index.name == "step" and frame.drop(columns="torn").dtypes.eq("float64").all(), frame
assert list(frame.columns) == ["acc", "state", "val_loss", "torn"] and not frame["torn"].any(), frame
assert frame.loc[3, "val_loss"] == said[2]["metrics"]["val_loss"] and frame["acc"].isna().sum() == 3 and frame.loc[2, "acc"] == float("inf")
more = a.metrics(details=True)
assert list(more["new_bytes"]) == [s["new_bytes"] for s in said] and list(more["step_state"]) == ["complete"] * 4 and list(more["state"]) == [1, 2, 3, 10], more
assert more["logical_bytes"].sum() == sum(s["logical_bytes"] for s in said) and str(more["time"].dt.tz) == "UTC"
assert list(more["stored_bytes"].diff().dropna()) and more.loc[1, "time"].isoformat()[:19] == said[0]["time"][:19]
assert list(store.runs[HOSTILE].metrics().index) == ["step-1"] and list(store.runs[HOSTILE].metrics()) == ["torn"]
assert list(a.steps) == ["1", "2", "3", "10"] and a.steps[10] == a.steps["10"] and 7 not in a.steps
fails(KeyError, lambda: a.steps[7], "no step 7", "'10'")
fails(KeyError, lambda: store.runs["c"], "no run 'c'", "'a'")
runs = store.runs_frame()
assert list(runs.index) == list(store.runs) and list(runs["steps"]) == [1, 4, 1] and runs.loc["a", "metrics"] == ("acc", "state", "val_loss"), runs
assert runs["logical_bytes"].to_dict() == {r["run"]: r["logical_bytes"] for r in asked("runs", ROOT)["runs"]}

best = store.best("a", "val_loss")
assert best == a.best("val_loss") and best.name == "10" and best.metrics["val_loss"] == 0.1 and store.best(a, "val_loss", mode="max").name == "1" and store.best("runs/a", "val_loss") == best
e = fails(ckptfs.NotFound, lambda: store.best("a", "speed"), "speed", "val_loss")
assert isinstance(e, FileNotFoundError) and e.code == "not_found" and e.exit_code == 1 and e.message in str(e)
again = pickle.loads(pickle.dumps(e))
assert type(again) is type(e) and (again.message, again.code, again.do, again.errno) == (e.message, e.code, e.do, e.errno)
fails(ValueError, lambda: store.best("a", "val_loss", mode="least"))
fails(ckptfs.Invalid, lambda: store.best("../a", "val_loss"))

# Models.
d = store.diff(a.steps[1], "runs/a/2")
want = asked("diff", f"{store.root}/runs/a/1", f"{store.root}/runs/a/2")
assert list(d["tensor"]) == ["head", "bits", "gone", "new"] or set(d["tensor"]) == {"head", "bits", "gone", "new"}, d
row = d.set_index("tensor").loc["head"]
assert (row.change, row.dtype_a, row["dtype"], row["shape"]) == ("changed", "F32", "F32", (8, 64)), row
mine = {t["name"]: t for t in want["changed"]}["head"]
assert (row.share, row.max_abs, row.rel_norm) == (mine["share"], mine["max_abs"], mine["rel_norm"]) and 0 < row.share < 1, (row, mine)
assert (d.set_index("tensor").loc["bits", ["max_abs", "special"]] == [0, 1]).all() and dict(zip(d.tensor, d.change))["gone"] == "removed" and dict(zip(d.tensor, d.change))["new"] == "added"
assert d.attrs["equal"] == want["equal"] >= 1
same = store.diff("runs/a/1", "runs/a/1")
assert len(same) == 0 and list(same.columns) == list(d.columns)
fails(ckptfs.Error, lambda: store.diff("runs/a/1", "runs/none"))
fails(ckptfs.Invalid, lambda: store.diff("runs/a/1", "../../etc/passwd"), "out of")
fails(ckptfs.Invalid, lambda: store.diff("runs/a/1", "/etc/passwd"), "does not lie in")

g = store.lineage()
name = "runs/{}/model.safetensors".format
assert g.edges[name("a/1"), name("a/2")]["how"] == "previous step" and g.edges[name("a/10"), name("b/1")]["how"] == "declared", g.edges(data=True)
assert g.edges[name("a/3"), f"runs/{HOSTILE}/step-1/model.safetensors"]["how"] == "merged"
import networkx  # noqa: E402

assert networkx.is_directed_acyclic_graph(g) and name("a/1") in networkx.ancestors(g, name("b/1"))
assert g.nodes[name("a/2")]["tensors"] == 4 and not g.nodes[name("a/2")]["retired"] and all("seq" in n for n in g.nodes.values())

t = store.show(name("a/2"), stats=True)
assert t.loc["body", "shape"] == (256, 256) and t.loc["body", "shared"] >= 1 and t.loc["bits", "inf"] == 1 and t.attrs["format"] == "safetensors", t
assert t.loc["head", "max"] == float(store.tensor(name("a/2"), "head").max()) and "min" not in store.show(name("a/2"))
assert set(store.find(name("a/1"), "body")["file"]) == set(store.find(hash=store.show(name("a/1")).loc["body", "hash"])["file"]) >= {name("a/1"), name("a/2")}
fails(ValueError, lambda: store.find(name("a/1")))
du = store.du("runs")
assert set(du.index) == {f"runs/{r}" for r in store.runs} and du.attrs["total"]["logical_bytes"] == asked("du", f"{store.root}/runs")["logical_bytes"] == du["logical_bytes"].sum()
assert len(store.du("runs", by_user=True)) == 1 and set(store.du(a, "runs/b").index) == {"runs/a", "runs/b"}
assert store.status()["store"] == asked("status", ROOT)["store"] and store.stats()["files"] == asked("stats", ROOT)["files"]
files = store.ls(recursive=True)
assert files.loc[name("a/1"), "size"] == len(store.open(name("a/1")).read()) and files["view"].any(), files

# What a notebook shows.
assert repr(store) == f"Store({ROOT!r})" and "'b'" in repr(store.runs) and "name='a'" in repr(a) and "'10'" in repr(a.steps) and "'1'" in repr(a.steps[1])
assert {"a", "b", HOSTILE, "acc, state, val_loss"} <= set(page(store)) and {"10", "complete", "0.1", "inf"} <= set(page(a)) and page(a) == page(a.steps)
assert {"runs/a/2", "val_loss", "0.5"} <= set(page(a.steps[2])) and f"run {HOSTILE}" in page(store.runs[HOSTILE])
gone = ckptfs.Store(ROOT, program=BIN)
gone.root = Path("/none")
assert any("/none" in text for text in page(gone)), page(gone)

# What is no store, no program; a program that says nothing that can be understood.
fails(ckptfs.NotStore, lambda: ckptfs.Store("/proc"), "/proc", "ckptfs mount")
fails(ckptfs.NoProgram, lambda: ckptfs.Store(ROOT, program="no-such-program"), "no-such-program")
assert fails(ckptfs.Error, lambda: ckptfs.Store(ROOT, program="/bin/false").status(), "exit code 1").code == "internal"
with tempfile.TemporaryDirectory() as tmp:
    loud = Path(tmp, "loud")
    loud.write_text("#!/bin/sh\necho ckptfs: repairing it first >&2\necho '{\"runs\": null}'\n")
    loud.chmod(0o755)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert len(ckptfs.Store(ROOT, program=loud).runs) == 0
    assert [str(w.message) for w in said] == ["ckptfs: repairing it first"], said

    loud.write_text("""#!/bin/sh
echo '{"store": "s"}'
echo time=now level=ERROR >&2
echo '{"error": {"code": "corrupt", "message": "f lost bytes", "do": "write it again"}, "exit_code": 1}' >&2
exit 1
""")
    broken = ckptfs.Store(ROOT, program=loud)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert broken.status() == {"store": "s"}
    assert [str(w.message) for w in said] == ["f lost bytes; write it again"], said
    assert fails(ckptfs.Corrupt, broken.stats, "f lost bytes").do == "write it again"

# Of many steps and metrics a page has the first and the last.
many = ckptfs.Steps("many", {str(i): ckptfs.Step(store, "many", str(i), "complete", None, 1, 1 << 20, 2000, 0, 0, None, 0, {f"m{k:03}": 0.5 for k in range(300)}, None) for i in range(500)})
texts = page(many)
assert {"0", "9", "490", "499", "500 in all", "1 MiB", "1.95 KiB", "m019"} <= set(texts) and not {"10", "489", "m020"} & set(texts), texts
assert repr(many) == "Steps('many': '0', '1', '2', '3', '4', '5', '6', '7', and 492 more)"

if mounted:
    assert os.fspath(best) == f"{ROOT}/runs/a/10" and Path(best).is_dir() and ckptfs.Store(best, program=BIN).root == Path(ROOT)
else:
    fails(ckptfs.Invalid, lambda: os.fspath(best), "Step.open")

# fsspec.
import fsspec  # noqa: E402
import pandas  # noqa: E402
from safetensors.numpy import load  # noqa: E402

if "ckptfs" not in fsspec.available_protocols():
    fsspec.register_implementation("ckptfs", "ckptfs.filesystem.CkptfsFileSystem")
options = {"program": BIN}
fs, top = fsspec.url_to_fs(URL, **options)
assert top == ROOT and type(fs) is type(pickle.loads(pickle.dumps(fs))), (fs, top)

found = fs.find(top, detail=True)
inside = {os.path.relpath(p, top) for p, i in found.items() if not i["view"]}
assert inside == set(sums), inside ^ set(sums)
assert set(found) - {f"{top}/nowhere"} == {p for p in fs.glob(f"{top}/**") if fs.isfile(p)} and len(found) > len(sums), "views are files, too"
for at, sha256 in ((at, s) for at, s in sums.items() if s):
    with fs.open(f"{top}/{at}") as f:
        assert hashlib.sha256(f.read()).hexdigest() == sha256, at
assert sorted(found) == fs.find(top)
for view in (p for p, i in found.items() if i["view"]):
    with fs.open(view, block_size=100_000) as f:
        assert f.read() == fs.cat_file(view) and f.seek(10) and f.read(300_000) == fs.cat_file(view, 10, 300_010), view
walked = {os.path.join(folder, f) for folder, _, files in fs.walk(top) for f in files}
assert walked == set(found), walked ^ set(found)
assert sorted(fs.glob(f"{URL}/runs/*/1/model.safetensors")) == [f"{top}/{name(p)}" for p in ("a/1", "b/1")]
assert fs.find(f"{top}/runs", maxdepth=1) == [] and f"{top}/runs/a" in fs.find(f"{top}/runs", maxdepth=1, withdirs=True)
assert fs.find(f"{top}/none") == [] and fs.find(f"{top}/{name('a/1')}") == [f"{top}/{name('a/1')}"]
assert fs.ls(f"{top}/runs", detail=False) == [f"{top}/runs/{r}" for r in sorted(store.runs)], fs.ls(f"{top}/runs")
assert fs.ls(f"{top}/same/same", detail=False) == [f"{top}/same/same"] == fs.ls(f"{top}/same", detail=False)
assert fs.isdir(f"{top}/runs") and not fs.exists(f"{top}/none") and not fs.exists(f"{top}/{name('a/1')}/x") and not fs.exists("/proc/none")
assert abs(fs.modified(f"{top}/eval.csv").timestamp() - fs.info(f"{top}/eval.csv")["mtime"]) < 1e-3 and fs.ukey(f"{top}/eval.csv") == fs.ukey(f"{top}/eval.csv") and fs.checksum(top) > 0
link = fs.info(f"{top}/link")
assert link["type"] == "file" and link["size"] == fs.size(f"{top}/{name('a/1')}"), link
assert {i["name"].rpartition("/")[2]: (i["type"], i["islink"]) for i in fs.ls(top)}["link"] == ("file", True)
assert {i["name"].rpartition("/")[2]: i["type"] for i in fs.ls(top)}["nowhere"] == "link"
fails(FileNotFoundError, lambda: fs.info(f"{top}/none"))
fails(FileNotFoundError, lambda: fs.open(f"{top}/none"))
fails(IsADirectoryError, lambda: fs.open(f"{top}/runs"))
fails(ValueError, lambda: fs.ls("ckptfs://relative/path"), "three slashes")

model = f"{top}/{name('a/3')}"
whole = fs.cat_file(model)
size = len(whole)
assert hashlib.sha256(whole).hexdigest() == sums[name("a/3")] and fs.info(model)["size"] == size
for start, end in ((0, 8), (8, 100), (None, 10), (size - 5, None), (-7, None), (-7, -2), (5, 5), (9, 3), (size, None), (size + 9, size + 10), (100, size + 5)):
    assert fs.cat_file(model, start, end) == whole[start:end], (start, end)
assert fs.cat_ranges([model] * 3, [0, 10, 100], [5, 20, 1000]) == [whole[0:5], whole[10:20], whole[100:1000]]
assert fs.head(model, 10) == whole[:10] and fs.tail(model, 10) == whole[-10:] and fs.cat([model, f"{top}/same/same"]) == {model: whole, f"{top}/same/same": b"same"}

# Reads anywhere, in small blocks of which few are kept; each block is fetched once where there is room, and neighbours at once.
import random  # noqa: E402

for cache in ({}, {"cache_type": "readahead"}, {"cache_type": "none"}):
    with fs.open(model, block_size=1000, cache_options={"maxblocks": 3} if not cache else None, **cache) as f:
        for _ in range(25):
            at, n = random.randrange(size), random.choice((0, 1, 999, 1000, 1001, 5000))
            assert f.seek(at) == at and f.read(n) == whole[at:at + n], (cache, at, n)
        assert f.seek(-3, 2) == size - 3 and f.read() == whole[-3:] and f.read() == b"" and f.tell() == size
with fs.open(model, block_size=1000) as f:
    with unittest.mock.patch.object(type(fs), "_part", autospec=True, side_effect=type(fs)._part) as part:
        f.read(1500), f.seek(500), f.read(1000), f.seek(5500), f.read(3000), f.seek(0), f.read(7000)
        assert [c.args[2:4] for c in part.call_args_list] == [(0, 2000), (5000, 9000), (2000, 5000)], part.call_args_list

with fs.open(model, block_size=1000) as f:
    with unittest.mock.patch.object(type(fs), "_part", autospec=True, side_effect=type(fs)._part) as part:
        assert b"".join(iter(lambda: f.read(700), b"")) == whole and part.call_count < size / 1000 / 10, part.call_count

# The programs that people use.
tensors = load(fs.cat_file(model))
with fsspec.open(URL + "/" + name("a/3"), **options) as f:
    opened = load(f.read())
assert opened.keys() == tensors.keys() and all((opened[n] == v).all() for n, v in tensors.items())
assert (store.tensor(name("a/3"), "body") == tensors["body"]).all()
with fsspec.open(URL + "/eval.csv", "rt", **options) as f:
    assert f.readline() == "x,y\n"
csv = pandas.read_csv(URL + "/eval.csv", storage_options=options)
assert csv.equals(pandas.DataFrame({"x": range(1000), "y": [i / 8 for i in range(1000)]}))
assert pandas.read_parquet(URL + "/eval.parquet", storage_options=options).equals(csv)
assert pandas.read_parquet(URL + "/eval.parquet", columns=["y"], storage_options=options)["y"].equals(csv["y"])
assert json.load(io.TextIOWrapper(best.open("metrics.json")))["val_loss"] == 0.1 and best.url("metrics.json") == URL + "/runs/a/10/metrics.json"
with tempfile.TemporaryDirectory() as tmp:
    fs.get(f"{top}/runs/a", f"{tmp}/a", recursive=True)
    for step in ("1", "10"):
        assert hashlib.sha256(Path(tmp, "a", step, "model.safetensors").read_bytes()).hexdigest() == sums[name(f"a/{step}")]
    fails(FileNotFoundError, lambda: fs.get_file(f"{top}/none", f"{tmp}/none"))
    assert not Path(tmp, "none").exists()
    os.symlink(f"{tmp}/none/x", f"{tmp}/link")
    fails(FileNotFoundError, lambda: fs.get_file(f"{top}/{name('a/1')}", f"{tmp}/link"))
    assert os.path.islink(f"{tmp}/link")  # what cannot be opened is not removed

# Nothing is written.
target = f"{top}/{name('a/1')}"
for do in (lambda: fs.open(target, "wb"), lambda: fs.open(target, "w"), lambda: fs.open(target, "ab"), lambda: fs.rm(target), lambda: fs.rm_file(target), lambda: fs.mkdir(top + "/x"), lambda: fs.touch(target),
           lambda: fs.makedirs(top + "/x/y"), lambda: fs.mv(target, top + "/x"), lambda: fs.cp_file(target, top + "/x"), lambda: fs.copy(target, top + "/x"),
           lambda: fs.pipe_file(target, b""), lambda: fs.pipe(target, b""), lambda: fs.put_file(__file__, target), lambda: fs.rmdir(top + "/runs"),
           lambda: csv.to_csv(URL + "/new.csv", storage_options=options)):
    assert "only reads" in str(fails(OSError, do)) and fs.cat_file(target) == fs.cat_file(target)

if mounted:  # A file that is replaced while it is open is not read as the other.
    (Path(ROOT) / "turn").write_bytes(b"a" * 3000)
    with fs.open(f"{top}/turn", block_size=1000) as f:
        assert f.read(10) == b"a" * 10
        (Path(ROOT) / "other").write_bytes(b"b" * 3000)
        os.replace(Path(ROOT) / "other", Path(ROOT) / "turn")
        assert f.read(10) == b"a" * 10  # it was there
        fails(ckptfs.Conflict, lambda: (f.seek(1500), f.read(10)), "changed")
    os.unlink(Path(ROOT) / "turn")
print("ok")
