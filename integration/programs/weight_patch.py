"""weight_patch.py MOUNT: vLLM's load_checkpoint_weight_patches takes what .ckptfs/since/rl/1/2.safetensors has. Two
steps are saved in runs/rl, of a model in bfloat16, of which some tensors change in few places, some in all, one not at
all."""
import importlib.util
import os
import sys
from glob import glob

import torch
from safetensors.torch import load_file, save_file

mount = sys.argv[1]
cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
home = sorted(glob(os.path.join(cache, "ckptfs/tools/vllm-*.*.*")))[-1]
spec = importlib.util.spec_from_file_location("checkpoint_weight_patch", os.path.join(
    home, "vllm/model_executor/model_loader/checkpoint_weight_patch.py"))  # which needs nothing of vLLM but itself
vllm = importlib.util.module_from_spec(spec)
spec.loader.exec_module(vllm)


class Model(torch.nn.Module):
    """A model whose weights have the names of the checkpoint, but for a packed one."""

    def __init__(self, weights):
        super().__init__()
        self.packed = torch.nn.Parameter(torch.cat([weights["q.weight"], weights["k.weight"]]))
        self.own = torch.nn.ParameterDict({n.replace(".", "_"): torch.nn.Parameter(t.clone()) for n, t in weights.items()
                                           if n not in ("q.weight", "k.weight")})

    def load_weights(self, weights):
        loaded = set()  # at once: vLLM puts its own copy_ in place for this call only
        for name, t in weights:
            if name in ("q.weight", "k.weight"):
                half = self.packed.shape[0] // 2
                self.packed.data[:half].copy_(t) if name[0] == "q" else self.packed.data[half:].copy_(t)
            else:
                self.own[name.replace(".", "_")].data.copy_(t)
            loaded.add(name)
        return loaded

    def state(self):
        q, k = self.packed.data.chunk(2)
        return {"q.weight": q, "k.weight": k} | {n.replace("_", "."): p.data for n, p in self.own.items()}


torch.manual_seed(5)
before = {n: torch.randn(s, dtype=torch.bfloat16) for n, s in
          {"q.weight": (96, 64), "k.weight": (96, 64), "up.weight": (200, 64), "norm.weight": (64,), "head.weight": (50, 64)}.items()}
after = {n: t.clone() for n, t in before.items()}
for name in "q.weight", "k.weight", "up.weight":
    after[name].view(-1)[torch.randperm(after[name].numel())[:70]] += 0.5
after["norm.weight"] += 1
for step, weights in ("1", before), ("2", after):
    os.makedirs(f"{mount}/runs/rl/{step}")
    save_file(weights, f"{mount}/runs/rl/{step}/model.safetensors", metadata={"format": "pt"})

patch = load_file(f"{mount}/.ckptfs/since/rl/1/2.safetensors")
sparse, dense = [], []
for name, t in patch.items():
    if name.endswith(".idx"):
        name = name.removesuffix(".idx")
        shape = tuple(before[name].shape)  # of the server's own step: the patch does not say it
        sparse.append(vllm.CheckpointWeightPatch(name, shape, before[name].dtype, patch[name + ".val"], t))
    elif not name.endswith(".val"):
        dense.append(vllm.CheckpointWeightPatch(name, tuple(t.shape), t.dtype, t.reshape(-1)))
assert sorted(p.name for p in sparse) == ["k.weight", "q.weight", "up.weight"], sparse
assert [p.name for p in dense] == ["norm.weight"], dense
model = Model(before)
loaded = vllm.load_checkpoint_weight_patches(model, sparse) | vllm.load_checkpoint_weight_patches(model, dense)
assert loaded == {"q.weight", "k.weight", "up.weight", "norm.weight"}, loaded
for name, t in model.state().items():
    assert torch.equal(t.view(torch.int16), after[name].view(torch.int16)), name
