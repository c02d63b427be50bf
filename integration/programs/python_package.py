"""python_package.py PACKAGE MOUNT: saves models by torch, and uses the Python package on them."""
import inspect
import json
import os
import subprocess
import sys
import tempfile
import typing
import unittest.mock
import warnings
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, sys.argv[1])
import ckptfs

root = Path(sys.argv[2])


def warned(do):
    """What a call returns, and what it warns of."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        return do(), [str(w.message) for w in said]


# What a tool sees of the package: its functions and their types, and no module that it uses.
assert set(dir(ckptfs)) >= {*ckptfs.__all__, "__version__"} and not {"os", "re", "uuid", "functools", "warnings"} & set(dir(ckptfs))
assert (Path(ckptfs.__file__).parent / "py.typed").exists()
for name in ckptfs.__all__:
    f = getattr(ckptfs, name)
    f = f.__init__ if isinstance(f, type) else f
    spoken = typing.get_type_hints(f, {"torch": torch, **f.__globals__})
    assert set(inspect.signature(f).parameters) - {"self"} | {"return"} == set(spoken), (name, spoken)

several = ckptfs.Match(Path("/m"), {"match": {"path": "<a>", "length": 3, "exact": True, "tensors": [{"new": f"n{i}", "stored": f"<s{i}>"} for i in range(21)]}})
assert "/m/&lt;a&gt;</b>: 3 layers" in several._repr_html_() and "<td>&lt;s19&gt;</td>" in several._repr_html_() and "and 1 more" in several._repr_html_()


class Net(nn.Module):
    """Two branches that are added; the head is as wide as one likes."""

    def __init__(self, width, deep=False):
        super().__init__()
        self.stem = nn.Linear(32, 64)
        self.norm = nn.BatchNorm1d(64)
        self.left = nn.Linear(64, 64)
        self.right = nn.Linear(64, 64)
        self.extra = nn.Linear(64, 64) if deep else None
        self.head = nn.Linear(64, width)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        x = self.left(x) + self.right(x)
        if self.extra is not None:
            x = self.extra(x)
        return self.head(x)


class Loop(nn.Module):
    """Cannot be traced."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        while x.sum() > 0:
            x = self.a(x) - 1
        return self.b(x)


class Encoder(nn.Module):
    """Torch's own encoder, whose attention holds parameters itself; an untraced one when it looks at its data."""

    def __init__(self, layers, heads=4, looks=False):
        super().__init__()
        self.cls = nn.Parameter(torch.randn(1, 1, 32))
        self.register_buffer("pe", torch.randn(1, 64, 32))
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, heads, 64, batch_first=True), layers)
        self.looks = looks

    def forward(self, x):
        x = torch.cat([self.cls.expand(x.shape[0], 1, 32), x + self.pe[:, :10]], 1)
        return self.encoder(x) if not self.looks or x.sum() > 0 else x


class Position(nn.Module):
    """Reads parts of a buffer, and makes a tensor by the way."""

    def __init__(self):
        super().__init__()
        self.register_buffer("pe", torch.randn(1, 64, 8))
        self.a = nn.Linear(8, 8)

    def forward(self, x):
        return self.a(x + self.pe[:, :10]) * (torch.ones(8) * 2)


def same(a, b, names):
    x, y = a.state_dict(), b.state_dict()
    return all(torch.equal(x[n], y[n]) for n in names)


torch.manual_seed(1)
saved = []
for i, loss in enumerate([0.5, float("nan"), 0.25, 0.75]):
    step = root / "runs" / "net" / str(i + 1)
    net = Net(10)
    ckptfs.record(step, metrics={"val/loss": loss}, parent=f"../{i}" if i else None, model=net)
    ckptfs.record(step, metrics={"epoch": i})
    torch.save(net.state_dict(), step / "model.pt")
    saved.append(net)
# A parent is another step of the mount, or a file in one, and is there; else nothing is written.
kid = root / "runs" / "kid" / "1"
for bad, error in (("/etc/passwd", ValueError), ("runs/net/9", FileNotFoundError), ("../9", FileNotFoundError), ("runs/net", ValueError), ("../../../../etc/passwd", ValueError),
                   ("", ValueError), (b"runs/net/1", ValueError), (3, TypeError), (".", ValueError), (kid, ValueError), (root, ValueError), ("models/1", ValueError)):
    for said in ({"parent": bad}, {"merged_from": ["runs/net/1", bad]}):
        try:
            ckptfs.record(kid, metrics={"epoch": 1}, **said)
            raise SystemExit(f"{bad!r} is a parent")
        except error:
            assert not kid.parent.exists(), bad
for name in ("", "a\nb", "m" * 256, 3):
    try:
        ckptfs.record(kid, metrics={"epoch": 1, name: 1})
        raise SystemExit(f"{name!r} is a metric")
    except ValueError:
        assert not kid.parent.exists(), name
for good in ("runs/net/1", "runs/net/1/model.pt", "../../net/1", root / "runs" / "net" / "1", str(root / "runs" / "net" / "1" / "model.pt")):
    ckptfs.record(kid, parent=good)
    assert json.loads((kid / "lineage.json").read_bytes())["parent"].startswith("runs/net/1"), good
ckptfs.record(kid, parent="runs/net/1", merged_from=["runs/net/2"])
assert json.loads((kid / "lineage.json").read_bytes()) == {"parent": "runs/net/1", "how": "declared", "merged_from": ["runs/net/2"]}
ckptfs.record(root / "runs" / "loop" / "1", model=Loop())
torch.save(Loop().state_dict(), root / "runs" / "loop" / "1" / "model.pt")

# All of the state is in the graph, also what modules hold that have others in them; nothing is left on the model.
for name, net, most in (("looks", Encoder(2, looks=True), Encoder(3, looks=True)), ("encoder", Encoder(2), Encoder(3)), ("position", Position(), Position())):
    was = set(vars(net))
    g = ckptfs.graph(net)
    assert g == ckptfs.graph(net) and set(vars(net)) == was, name
    named = {p["name"] if isinstance(p, dict) else p for n in g["nodes"] for p in n.get("params", ())}
    assert named == set(net.state_dict()), (name, named ^ set(net.state_dict()))
    step = root / "runs" / name / "1"
    ckptfs.record(step, model=net)
    torch.save(net.state_dict(), step / "model.pt")
    subprocess.run([sys.argv[3], "sync", str(root)], check=True)
    with ckptfs.match(most, at=root) as m:
        assert m.path == step / "model.pt", (name, m.path)
        loaded = ckptfs.transfer(most, m)
        assert set(loaded) == set(net.state_dict()) and same(most, net, loaded), (name, set(net.state_dict()) - set(loaded))
assert ckptfs.graph(Encoder(2, heads=8)) != ckptfs.graph(Encoder(2)) and ckptfs.graph(Encoder(2, heads=8, looks=True)) != ckptfs.graph(Encoder(2, looks=True))

assert ckptfs.mount_of(root / "runs") == root
assert ckptfs.best(root / "runs" / "net", "val/loss") == root / "runs" / "net" / "3"
assert ckptfs.best(root / "runs" / "net", "val/loss", mode="max") == root / "runs" / "net" / "4"
assert ckptfs.best(str(root / "runs/net"), "epoch", "max").name == "4"
torch.load(ckptfs.best(root / "runs" / "net", "val/loss") / "model.pt", weights_only=True)
try:
    ckptfs.best(root / "runs" / "net", "epoch")
    raise SystemExit("the best epoch is known")
except ValueError:
    pass
for bad in (lambda: ckptfs.best(root / "runs" / "net", "speed"), lambda: ckptfs.best(root / "runs" / "none", "epoch")):
    try:
        bad()
        raise SystemExit("an unknown metric has a best step")
    except FileNotFoundError:
        pass

os.chdir("/")
with unittest.mock.patch.object(ckptfs, "mount_of", lambda path=None: root):  # this machine may have others
    assert ckptfs.best("runs/net", "val/loss") == root / "runs" / "net" / "3"
try:
    ckptfs.best(root / "runs" / "none", "val/loss")
    raise SystemExit("a run that is not there has a best step")
except FileNotFoundError as e:
    assert "there is no run" in str(e), e
with tempfile.TemporaryDirectory() as outside:
    _, said = warned(lambda: ckptfs.record(outside, metrics={"loss": 1}))
    assert len(said) == 1 and "in no ckptfs mount" in said[0], said

subprocess.run([sys.argv[3], "sync", str(root)], check=True)

# The same but for its head, and with a layer more.
ckptfs.record(root / "runs" / "net" / "2", metrics={"quality": 1})
subprocess.run([sys.argv[3], "lineage", str(root / "runs")], check=True, stdout=subprocess.DEVNULL)  # it looks what there is
for new, tensors in ((Net(7), 11), (Net(7, deep=True), 11)):
    m = ckptfs.match(new, at=root)
    assert m is not None and m.path == root / "runs" / "net" / "2" / "model.pt" and m.exact, m
    assert len(m.tensors) == tensors, (len(m.tensors), m.answer)
    before = new.head.weight.clone()
    loaded = ckptfs.transfer(new, m, freeze=True)
    assert len(loaded) == tensors and "norm.running_mean" in loaded and "head.weight" not in loaded, loaded
    assert same(new, saved[1], loaded) and torch.equal(new.head.weight, before)
    assert not new.stem.weight.requires_grad and new.head.weight.requires_grad
whole = Net(10)
assert len(ckptfs.transfer(whole, ckptfs.match(whole, at=root))) == len(whole.state_dict())
assert same(whole, saved[1], whole.state_dict())

m = ckptfs.match(Loop(), at=root)
assert m is not None and m.path.parent.parent.name == "loop" and len(m.tensors) == 4, m
found, said = warned(lambda: ckptfs.match({"v": 1, "nodes": [{"id": "x", "op": "Nothing"}]}, at=root))
assert found is None and len(said) == 1 and "ckptfs sync" in said[0], (found, said)
found, said = warned(lambda: ckptfs.match(nn.Sequential(nn.ReLU(), nn.Conv2d(3, 7, 5)), at=root))
assert found is None and len(said) == 1, (found, said)
found, said = warned(lambda: ckptfs.transfer(whole, None))
assert found == [] and len(said) == 1 and "nothing is loaded" in said[0], (found, said)
try:
    ckptfs.match({"v": 1, "nodes": [{"id": "x"}]}, at=root)
    raise SystemExit("no graph is answered")
except OSError as e:
    assert e.errno == 22, e

# A child that begins with what matched, and differs from it in one tensor: by whom it is known, and what it costs.
import shutil
from safetensors.torch import load_file, save_file

first = root / "runs" / "derived" / "1"
first.mkdir(parents=True)
for part in ("a", "b"):
    save_file({f"{part}{i}": torch.randn(64, 1024) for i in range(2)}, first / f"{part}.safetensors")
subprocess.run([sys.argv[3], "sync", str(root)], check=True)
child = root / "runs" / "derived" / "2"
ckptfs.derive(first, child, {"b1": torch.zeros(64, 1024)})
assert (child / "a.safetensors").read_bytes() == (first / "a.safetensors").read_bytes()
old, new = load_file(first / "b.safetensors"), load_file(child / "b.safetensors")
assert torch.equal(new["b0"], old["b0"]) and torch.equal(new["b1"], torch.zeros(64, 1024))
for changed, error in (({"none": torch.zeros(1)}, KeyError), ({"b1": torch.zeros(64)}, ValueError)):
    try:
        ckptfs.derive(first, root / "runs" / "derived" / "3", changed)
        raise SystemExit("what the parent has not was derived")
    except error:
        pass
    assert not (root / "runs" / "derived" / "3").exists()
whole = (child / "b.safetensors").read_bytes()
try:
    ckptfs.derive(first, child, {"b1": torch.ones(64, 1024)})
    raise SystemExit("a step was derived over another")
except FileExistsError:
    assert (child / "b.safetensors").read_bytes() == whole
whole = (first / "b.safetensors").read_bytes()
try:
    ckptfs.derive(first, first, {"b1": torch.zeros(64, 1024)})
    raise SystemExit("a step was derived from itself")
except ValueError:
    assert (first / "b.safetensors").read_bytes() == whole and len(list(first.iterdir())) == 2

# The answer stays readable while its model is removed, and is the parent of what it was transferred to.
with ckptfs.match(Net(7), at=root) as m:
    ckptfs.record(root / "runs" / "next" / "1", parent=m, model=Net(7))
    torch.save(Net(7).state_dict(), root / "runs" / "next" / "1" / "model.pt")
    subprocess.run([sys.argv[3], "sync", str(root)], check=True)
    said = json.loads(subprocess.run([sys.argv[3], "lineage", "--json", str(root / "runs" / "next" / "1")], check=True, stdout=subprocess.PIPE).stdout)
    assert said["models"][0]["how"] == "transfer" and said["models"][0]["chain"][1]["path"] == m.path.relative_to(root).as_posix(), said
    shutil.rmtree(m.path.parent)
    late = Net(7)
    assert len(ckptfs.transfer(late, m)) == 11 and same(late, saved[1], m.tensors)
    pinned = m.pinned
assert not pinned.exists()
print("ok")
