"""transfer.py MOUNT CKPTFS: a transfer by files alone, as docs/match.md shows it: of a model in one file, and of one in several, each removed before its weights are read."""
import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

root = Path(sys.argv[1])


def run(*args):
    return subprocess.run([sys.argv[2], *map(str, args)], check=True, stdout=subprocess.PIPE, text=True).stdout


class Net(nn.Module):
    def __init__(self, names, width, classes):
        super().__init__()
        self.names = names
        for name, (i, o) in zip(names, [(width, 256), (256, 256), (256, classes)]):
            self.add_module(name, nn.Linear(i, o))

    def arch(self):
        nodes = [{"id": "x", "op": "Input"}]
        for name in self.names:
            layer = getattr(self, name)
            nodes.append({"id": name, "op": "Linear", "cfg": {"in": layer.in_features, "out": layer.out_features}, "in": [nodes[-1]["id"]],
                          "params": [f"{name}.weight", f"{name}.bias"]})
        return {"v": 1, "nodes": nodes}


def save(step, old):
    step.mkdir(parents=True)
    (step / "arch.json").write_text(json.dumps(old.arch()))
    state = old.state_dict()
    if step.parent.name == "one":
        torch.save({"model": state}, step / "model.pt")
        return
    parts = {f"model-0000{i + 1}-of-00003.safetensors": {f"{n}.{p}": state[f"{n}.{p}"] for p in ("weight", "bias")} for i, n in enumerate(old.names)}
    for file, part in parts.items():
        save_file(part, step / file)
    (step / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {t: file for file, part in parts.items() for t in part}}))


for kind, width in (("one", 64), ("several", 96)):
    torch.manual_seed(width)
    old, net = Net(("stem", "body", "head"), width, 10), Net(("embed", "trunk", "out"), width, 7)
    source = root / "runs" / kind / "1"
    save(source, old)
    run("sync", root)
    run("lineage", root / "runs")  # the daemon looks what there is
    query = root / ".ckptfs" / "query" / kind
    query.write_text(json.dumps(net.arch()))

    match = json.loads(query.read_bytes())["match"]
    assert (root / match["path"]).parent == source and match["length"] == 3 and len(match["tensors"]) == 4, match
    shutil.rmtree(source)

    state = net.state_dict()
    with safe_open(root / match["pinned"], "pt") as stored:
        for t in match["tensors"]:
            state[t["new"]].copy_(stored.get_tensor(t["stored"]))
    for new, was in (("embed", "stem"), ("trunk", "body")):
        assert torch.equal(getattr(net, new).weight, getattr(old, was).weight), new
    step = root / "runs" / f"{kind}-child" / "1"
    step.mkdir(parents=True)
    (step / "lineage.json").write_text(json.dumps({"parent": match["path"], "how": "transfer", "tensors": {t["new"]: t["stored"] for t in match["tensors"]}}))
    (step / "arch.json").write_text(json.dumps(net.arch()))
    torch.save(net.state_dict(), step / "model.pt")
    run("sync", root)
    said = json.loads(run("lineage", "--json", step))
    chain = said["models"][0]["chain"]
    assert not said.get("problem") and said["models"][0]["how"] == "transfer", said
    if kind == "one":
        assert [a["owned_tensors"] for a in chain] == [2, 4] and chain[1]["retired"], chain
    query.unlink()
    assert not (root / match["pinned"]).exists()

# By a name, from the command line.
asked = root / "asked.json"
asked.write_text(json.dumps(net.arch()))
said = run("match", asked, "--in", root, "--pin", "mine")
assert f"pinned   {root}/.ckptfs/query/mine.safetensors" in said, said
with safe_open(root / ".ckptfs" / "query" / "mine.safetensors", "pt") as stored:
    assert torch.equal(stored.get_tensor("out.weight"), net.out.weight)
assert json.loads((root / ".ckptfs" / "query" / "mine").read_bytes())["match"]["length"] == 4
print("ok")
