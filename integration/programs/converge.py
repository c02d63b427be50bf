"""converge.py OUT N: trains a small network on scikit-learn's handwritten digits from its first steps until it has converged, and saves
its weights N times, as OUT/<step>/model.safetensors; prints for each save a line of JSON: {"step", "file", "loss", "accuracy"}."""
import json
import os
import sys

import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn

out, n = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
torch.set_num_threads(1)
images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16, torch.tensor(labels)
model = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64),
                      nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024, 384), nn.ReLU(), nn.Linear(384, 10))
each = 16
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, n * each)
for step in range(1, n + 1):
    model.train()
    for _ in range(each):
        i = torch.randint(1500, (64,))
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        loss.backward()
        opt.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        right = (model(x[1500:]).argmax(1) == y[1500:]).float().mean().item()
    file = os.path.join(out, str(step), "model.safetensors")
    os.makedirs(os.path.dirname(file))
    save_file(model.state_dict(), file)
    print(json.dumps({"step": step, "file": file, "loss": loss.item(), "accuracy": right}), flush=True)
