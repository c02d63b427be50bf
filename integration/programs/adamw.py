"""adamw.py RUN N [SEED]: trains a small model with AdamW, then fine-tunes it at a low rate for N checkpoints: weights and
optimizer in RUN/<step>/model.pt. Prints for each its path and the SHA-256 of what was written."""
import hashlib
import io
import os
import sys

import torch
from torch import nn

run, n = sys.argv[1], int(sys.argv[2])
torch.manual_seed(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10))
x, y = torch.randn(256, 256), torch.randint(10, (256,))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def train(steps):
    for _ in range(steps):
        batch = torch.randint(256, (32,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()


train(60)
for group in optimizer.param_groups:
    group["lr"] = 1e-6
for i in range(1, n + 1):
    train(2)
    out = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": i}, out)
    path = os.path.join(run, str(100 * i), "model.pt")
    os.makedirs(os.path.dirname(path))
    with open(path, "wb") as f:
        f.write(out.getvalue())
    print(os.path.relpath(path, run), hashlib.sha256(out.getvalue()).hexdigest(), flush=True)
