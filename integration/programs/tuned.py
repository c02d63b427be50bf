"""tuned.py RUNS: trains a small transformer, fine-tunes it in two ways, and merges the two; each step with its metrics."""
import json
import math
import sys
from pathlib import Path

import torch
from torch import nn

runs = Path(sys.argv[1])


def save(step, state, lineage=None, **metrics):
    step.mkdir(parents=True)
    if lineage:
        (step / "lineage.json").write_text(json.dumps(lineage))
    torch.save(state, step / "model.pt")
    (step / "metrics.json").write_text(json.dumps(metrics))
    return state


def train(run, steps, rate, seed, start=None, frozen=0, lineage=None):
    """The state of the last step. At step 3 the loss is not a number."""
    torch.manual_seed(seed)
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 4, enable_nested_tensor=False)
    if start:
        net.load_state_dict(start)
    for p in list(net.parameters())[:frozen]:
        p.requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=rate)
    for step in range(1, steps + 1):
        x = torch.randn(8, 16, 64)
        loss = (net(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = math.nan if step == 3 else loss.item()
        state = save(runs / run / str(100 * step), net.state_dict(), lineage if step == 1 else None, val_loss=value, acc=1 - math.exp(-step / 5 - rate))
    return state


base = train("base", 8, 0.05, 0)
head = train("tune-head", 5, 0.02, 1, base, frozen=36)  # its parent is guessed, from what is frozen
whole = train("tune-all", 5, 0.02, 2, base, lineage={"parent": "runs/base/800"})
merged = {name: (head[name] + whole[name]) / 2 for name in head}
parents = {"parent": "runs/tune-head/500", "merged_from": ["runs/tune-all/500"]}
save(runs / "merged" / "1", merged, parents, val_loss=1.25, acc=0.5)
