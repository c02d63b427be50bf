"""bases.py OUT: for each way to save a model and a fine-tune of it, OUT/<way>/base/… and OUT/<way>/tuned/…; prints the ways. Each
way has a model of its own, of the same architecture."""
import os
import re
import sys

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

out = sys.argv[1]
torch.set_num_threads(1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(512, 128)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(128, 4, 512, dropout=0, batch_first=True) for _ in range(4))
        self.head = nn.Linear(128, 512)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def train(model, rate, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    for _ in range(steps):
        text = torch.randint(512, (4, 33))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()).backward()
        optimizer.step()
    return optimizer


def one(name, keys=lambda state: state):
    def save(folder, state):
        torch.save(keys(state), os.path.join(folder, name))
    return save


def prefixed(prefix):
    return lambda state: {prefix + k: v for k, v in state.items()}


def shards(n):
    def save(folder, state):
        names = list(state)
        for i in range(n):
            some = names[len(names) * i // n:len(names) * (i + 1) // n]
            save_file({k: state[k].clone() for k in some}, os.path.join(folder, f"model-{i + 1:05}-of-{n:05}.safetensors"))
    return save


def single(folder, state):
    save_file({k: v.clone() for k, v in state.items()}, os.path.join(folder, "model.safetensors"))


def npz(folder, state):
    np.savez(os.path.join(folder, "model.npz"), **{k: v.numpy() for k, v in state.items()})


def compiled(state):
    """As torch.compile on each layer leaves the names."""
    return {re.sub(r"^(layers\.\d+)\.", r"\1._orig_mod.", k): v for k, v in state.items()}


def averaged(state):
    return {"model": state, "ema": {k: v * 0.999 for k, v in state.items()}}


plain = one("model.pt")
WAYS = {
    "same": (plain, plain),
    "wrapped": (plain, one("model.pt", lambda state: {"model": state})),
    "unwrapped": (one("model.pt", lambda state: {"state_dict": state, "epoch": 3}), plain),
    "ddp": (plain, one("model.pt", prefixed("module."))),
    "ddp-compiled": (one("model.pt", prefixed("module.")), one("model.pt", prefixed("_orig_mod."))),
    "compiled-layers": (plain, one("model.pt", compiled)),
    "peft": (one("model.pt", prefixed("model.")), one("model.pt", prefixed("base_model.model.model."))),
    "averaged": (one("model.pt", averaged), plain),
    "declared": (plain, one("tuned.pt", lambda state: {"model": state})),
    "4-to-1": (shards(4), single),
    "4-to-2": (shards(4), shards(2)),
    "1-to-4": (single, shards(4)),
    "pt-to-safetensors": (plain, single),
    "safetensors-to-npz": (single, npz),
    "npz-to-pt": (npz, plain),
}
for seed, (way, (base, tuned)) in enumerate(WAYS.items()):
    torch.manual_seed(seed)
    model = Model()
    train(model, 1e-3, 3)
    for name, save in (("base", base), ("tuned", tuned)):
        os.makedirs(os.path.join(out, way, name))
        save(os.path.join(out, way, name), model.state_dict())
        if name == "base":
            train(model, 2e-6, 2)
    print(way)
