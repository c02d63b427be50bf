"""Trains a small CNN for a few steps with a frozen backbone and saves every step with plain torch.save
on a ckptfs mount; reads each back in three ways; prints what it cost.

    demo.py CKPTFS MOUNTPOINT
"""
import json
import os
import subprocess
import sys
import time

import torch
from torch import nn
from safetensors.torch import load_file

CKPTFS, MNT = sys.argv[1:]
STEPS = 8


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.short = nn.Sequential() if cin == cout else nn.Sequential(
            nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.short(x))


class Net(nn.Module):
    """A ResNet of four blocks for 3x32x32 images, 4.9 M parameters."""

    def __init__(self, classes=10):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
            Block(64, 64, 1), Block(64, 128, 2), Block(128, 256, 2), Block(256, 512, 2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(512, classes)

    def forward(self, x):
        return self.head(self.backbone(x))


def mb(n):
    return f"{n / 1e6:,.1f} MB"


def same(a, b):
    """Bit for bit: as integers, so that NaN equals itself and -0 does not equal 0."""
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape
        and torch.equal(a[k].contiguous().reshape(-1).view(torch.uint8), b[k].contiguous().reshape(-1).view(torch.uint8))
        for k in a)


def check(what, ok):
    print(f"  {what:<58}{'identical' if ok else 'DIFFERENT'}")
    if not ok:
        sys.exit(1)


def stats():
    out = subprocess.run([CKPTFS, "stats", "--json", MNT], check=True, capture_output=True).stdout
    return json.loads(out)


torch.manual_seed(0)
torch.set_num_threads(min(4, os.cpu_count() or 1))
classes = torch.randn(10, 3, 32, 32)
labels = torch.randint(10, (128,))
images = classes[labels] + 0.7 * torch.randn(128, 3, 32, 32)

model = Net().eval()  # eval: the frozen backbone's batch statistics stay as they are
model.backbone.requires_grad_(False)
optimiser = torch.optim.Adam(model.head.parameters(), lr=0.1)
with torch.no_grad():
    features = model.backbone(images)

print(f"training: {len(model.state_dict())} tensors, backbone frozen, every step saved with torch.save")
saved = {}
for step in range(1, STEPS + 1):
    loss = nn.functional.cross_entropy(model.head(features), labels)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    path = f"{MNT}/runs/demo/{step}/model.pt"
    os.makedirs(os.path.dirname(path))
    start = time.perf_counter()
    torch.save(model.state_dict(), path)
    took = time.perf_counter() - start
    saved[path] = {k: v.clone() for k, v in model.state_dict().items()}
    print(f"  step {step}  loss {loss.item():.3f}  {path[len(MNT) + 1:]}  {mb(os.path.getsize(path))} in {took * 1e3:.0f} ms")

subprocess.run([CKPTFS, "sync", MNT], check=True, stdout=subprocess.DEVNULL)
subprocess.run([CKPTFS, "evict", MNT], check=True, stdout=subprocess.DEVNULL)  # from here on there are chunks only
print("read back, the raw copies evicted:")
check("torch.load(model.pt)", all(same(torch.load(p), sd) for p, sd in saved.items()))
check("torch.load(model.pt, mmap=True)", all(same(torch.load(p, mmap=True), sd) for p, sd in saved.items()))
views = {p[:-len(".pt")] + ".safetensors": sd for p, sd in saved.items()}
check("safetensors load_file(model.safetensors), never written", all(same(load_file(p), sd) for p, sd in views.items()))

s = stats()
files = sum(os.path.getsize(p) for p in saved)
print(f"as files     {mb(files):>10}")
print(f"stored once  {mb(s['stored_bytes']):>10}   {files / s['stored_bytes']:.1f} times less")
