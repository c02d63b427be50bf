"""averages.py DIR: real training loops of a small model, which save at each of ten steps what is a function of other things
that they save. Prints a line of JSON a file, in the order of the saves: path and kind, of which of is what it takes part in.

    runs/one/N/checkpoint.pt          weights, and their average by mul_ and add_, in single precision
    runs/lerp/N/checkpoint.pt         the same by lerp_ (torch.optim.swa_utils)
    runs/two/N/model.safetensors      weights, and in
    runs/two/N/ema.safetensors        their average
    runs/first/N/a-ema.safetensors    the average is saved before
    runs/first/N/model.safetensors    its weights
    runs/swa/N/model.pt, swa.pt       a mean of all steps
    runs/master/N/model.safetensors   bfloat16, and
    runs/master/N/optimizer.pt        single precision, of which it is the rounding
    runs/back/N/a-optimizer.pt, model.safetensors   the same in the other order"""
import json
import os
import sys

import torch
from safetensors.torch import save_file
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

out = sys.argv[1]
kinds = sys.argv[2:]
torch.set_num_threads(1)
STEPS, DECAY = 10, 0.999


def path(name):
    full = os.path.join(out, name)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    return full


def save(kind, step, name, data):
    name = f"runs/{kind}/{step}/{name}"
    (save_file if name.endswith(".safetensors") else torch.save)(data, path(name))
    print(json.dumps({"path": name, "kind": kind}), flush=True)


class Training:
    def __init__(self, kind):
        torch.manual_seed(sum(kind.encode()))
        self.model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10))
        self.x, self.y = torch.randn(256, 256), torch.randint(10, (256,))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        for _ in range(40):
            self.step()

    def step(self):
        batch = torch.randint(256, (32,))
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(self.x[batch]), self.y[batch]).backward()
        self.optimizer.step()

    def state(self):
        return {n: w.detach().clone() for n, w in self.model.state_dict().items()}


def averaged(kind):
    run = Training(kind)
    ema = run.state()
    swa = AveragedModel(run.model) if kind == "swa" else AveragedModel(run.model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    swa.update_parameters(run.model)
    for _ in range(300):  # the average is some way behind
        run.step()
        with torch.no_grad():
            for n, w in run.model.state_dict().items():
                ema[n].mul_(DECAY).add_(w, alpha=1 - DECAY)
        swa.update_parameters(run.model)
    for step in range(1, STEPS + 1):
        run.step()
        with torch.no_grad():
            for n, w in run.model.state_dict().items():
                ema[n].mul_(DECAY).add_(w, alpha=1 - DECAY)
        swa.update_parameters(run.model)
        weights, average = run.state(), {n: w.clone() for n, w in ema.items()}
        other = {n.removeprefix("module."): w.clone() for n, w in swa.state_dict().items() if n != "n_averaged"}
        if kind == "one":
            save(kind, step, "checkpoint.pt", {"model": weights, "ema": average})
        elif kind == "lerp":
            save(kind, step, "checkpoint.pt", {"model": weights, "ema": other})
        elif kind == "two":
            save(kind, step, "model.safetensors", weights)
            save(kind, step, "ema.safetensors", average)
        elif kind == "first":
            save(kind, step, "a-ema.safetensors", average)
            save(kind, step, "model.safetensors", weights)
        else:
            save(kind, step, "model.pt", weights)
            save(kind, step, "swa.pt", other)


def masters(kind):
    run = Training(kind)
    for step in range(1, STEPS + 1):
        run.step()
        half = {n: w.bfloat16() for n, w in run.state().items()}
        state = {"optimizer": run.optimizer.state_dict(), "master": run.state()}
        if kind == "master":
            save(kind, step, "model.safetensors", half)
            save(kind, step, "optimizer.pt", state)
        else:
            save(kind, step, "a-optimizer.pt", state)
            save(kind, step, "model.safetensors", half)


for kind in kinds or ["one", "lerp", "two", "first", "swa", "master", "back"]:
    (masters if kind in ("master", "back") else averaged)(kind)
