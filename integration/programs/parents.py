"""parents.py PACKAGE MOUNT CKPTFS: what makes a model another's child, and what does not, with models as torch and transformers save them."""
import json
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

sys.path.insert(0, sys.argv[1])
import ckptfs

root = Path(sys.argv[2])


def run(*args):
    return subprocess.run([sys.argv[3], *map(str, args)], check=True, stdout=subprocess.PIPE, text=True).stdout


def models(step):
    """By file: how its parent is known, and of each model of its chain the path and how many tensors are its."""
    run("sync", root)
    said = json.loads(run("lineage", "--json", step))
    assert not said.get("problem"), said
    return {Path(m["path"]).name: (m["how"], [(a["path"], a["owned_tensors"]) for a in m["chain"]]) for m in said["models"]}


def save(step, **files):
    step.mkdir(parents=True, exist_ok=True)
    for name, state in files.items():
        torch.save(state, step / f"{name}.pt")


def conv(seed):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Conv2d(3, 256, 3), nn.BatchNorm2d(256), nn.ReLU(), nn.Conv2d(256, 256, 3, bias=False), nn.BatchNorm2d(256), nn.Flatten(), nn.Linear(256, 10))
    return net


def gpt(seed, **more):
    torch.manual_seed(seed)
    return GPT2LMHeadModel(GPT2Config(**{"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 64, "vocab_size": 500, "bos_token_id": 0, "eos_token_id": 0, **more}))


runs = root / "runs"

# Other seeds: all that is equal are norms, biases and counters; and the optimizers, which were never asked, hold zeros.
for seed in (1, 2):
    net = conv(seed)
    zeros = {"state": {i: {"momentum_buffer": torch.zeros_like(p)} for i, p in enumerate(net.parameters())}}
    save(runs / f"conv{seed}" / "1", model=net.state_dict(), optimizer=zeros, ema=net.state_dict())
    gpt(seed).save_pretrained(runs / f"gpt{seed}" / "1")
    for step in (runs / f"conv{seed}" / "1", runs / f"gpt{seed}" / "1"):
        assert all(how == "none" for how, _ in models(step).values()), models(step)
# Shards of one set, which have a tensor in common.
shared = torch.randn(64, 64)
(runs / "set" / "1").mkdir(parents=True)
for i in range(2):
    save_file({"shared": shared, f"w{i}": torch.randn(64, 32)}, runs / "set" / "1" / f"model-{i + 1:05}-of-00002.safetensors")
assert all(how == "none" for how, _ in models(runs / "set" / "1").values())
# A frozen backbone under a new head; adapters beside all that there was.
net = conv(1)
net[6] = nn.Linear(256, 7)
save(runs / "tuned" / "1", model=net.state_dict())
how, chain = models(runs / "tuned" / "1")["model.pt"]
assert how == "inferred" and [n for _, n in chain] == [2, len(net.state_dict()) - 2] and chain[1][0].startswith("runs/conv1/1/"), chain
(runs / "lora" / "1").mkdir(parents=True)
state = gpt(2).state_dict()
del state["lm_head.weight"]
save_file({**state, "lora.a": torch.randn(64, 8), "lora.b": torch.randn(8, 64)}, runs / "lora" / "1" / "model.safetensors")
how, chain = models(runs / "lora" / "1")["model.safetensors"]
assert how == "inferred" and chain[0][1] == 2 and chain[1][0] == "runs/gpt2/1/model.safetensors", chain


# A transfer into layers that are called otherwise: the child owns what differs.
class Old(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.body, self.head = nn.Linear(16, 64), nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x):
        return self.head(torch.relu(self.body(torch.relu(self.embed(x)))))


class New(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.block, self.body, self.head = nn.Linear(16, 64), nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 7)

    def forward(self, x):
        return self.head(torch.tanh(self.body(torch.relu(self.block(torch.relu(self.stem(x)))))))


old = Old()
ckptfs.record(runs / "old" / "1", model=old)
# Beside its optimizer, below a name of its own.
save(runs / "old" / "1", checkpoint={"model": old.state_dict(), "opt": torch.optim.AdamW(old.parameters()).state_dict()})
run("sync", root)
run("match", "--like", runs / "old" / "1")
with ckptfs.match(New(), at=root) as m:
    assert m.path == runs / "old" / "1" / "checkpoint.pt" and m.tensors["stem.weight"] == "model.embed.weight", (m, m.tensors)
    for saved in ("plain", "nested", "unsaid"):
        new = New()
        loaded = ckptfs.transfer(new, m)
        assert loaded == ["block.bias", "block.weight", "stem.bias", "stem.weight"], loaded
        assert torch.equal(new.block.weight, old.body.weight)
        step = runs / saved / "1"
        ckptfs.record(step, parent=m, model=new)
        if saved == "unsaid":  # another program wrote it: the architectures tell
            (step / "lineage.json").write_text(json.dumps({"parent": "runs/old/1", "how": "transfer"}))
        save(step, model={"net": new.state_dict()} if saved == "nested" else new.state_dict())
        how, chain = models(step)["model.pt"]
        assert how == "transfer" and [n for _, n in chain] == [4, 4] and chain[1][0] == "runs/old/1/checkpoint.pt", (saved, how, chain)

# Tied weights: the library saves one name of two; a torch file has both.
step = runs / "tied" / "1"
lm = gpt(3)
ckptfs.record(step, model=lm)
lm.save_pretrained(step)
both = gpt(4, n_layer=2)
ckptfs.record(runs / "both" / "1", model=both)
save(runs / "both" / "1", model=both.state_dict())
run("sync", root)
for how, said in (("explicit", json.loads(run("match", "--json", "--like", step))), ("explicit", json.loads(run("match", "--json", "--like", runs / "both" / "1")))):
    assert said["graph_kind"] == how, said
assert "refused" not in run("status", root), run("status", root)
deeper = gpt(5, n_layer=5)
with ckptfs.match(deeper, at=root) as m:
    assert m.path == step / "model.safetensors", m
    loaded = ckptfs.transfer(deeper, m)
    assert torch.equal(deeper.transformer.wte.weight, lm.transformer.wte.weight) and deeper.lm_head.weight is deeper.transformer.wte.weight
    assert torch.equal(deeper.transformer.h[2].mlp.c_fc.weight, lm.transformer.h[2].mlp.c_fc.weight) and len(loaded) > 36, loaded
# The same in several files.
step = runs / "sharded" / "1"
wide = gpt(7, n_embd=128)
ckptfs.record(step, model=wide)
wide.save_pretrained(step, max_shard_size="500KB")
assert len(list(step.glob("*.safetensors"))) > 1
run("sync", root)
assert json.loads(run("match", "--json", "--like", step))["graph_kind"] == "explicit"
wider = gpt(8, n_embd=128, n_layer=5)
with ckptfs.match(wider, at=root) as m:
    assert m.path == step / "model.safetensors.index.json", m
    assert len(ckptfs.transfer(wider, m)) > 36 and torch.equal(wider.transformer.h[2].mlp.c_fc.weight, wide.transformer.h[2].mlp.c_fc.weight)
assert "refused" not in run("status", root), run("status", root)
whole = gpt(6)
with ckptfs.match(whole, at=root) as m:
    assert len(ckptfs.transfer(whole, m)) == len(whole.state_dict()), (m, m.tensors)
print("ok")
