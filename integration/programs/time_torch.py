"""time_torch.py BYTES ROUNDS PLAIN MOUNT CKPTFS: times torch.save and torch.load in both folders, now one first and
now the other. Prints one JSON object a figure: {"what", "ours", "seconds"}."""
import json
import os
import subprocess
import sys
import time

import torch

size, rounds = int(sys.argv[1]), int(sys.argv[2])
plain, mount, ckptfs = sys.argv[3:]
each = 4_000_000  # 4 MB: a layer's size in a model of some 10⁸ parameters
sd = {f"layers.{i}.weight": torch.randn(each // 4) for i in range(max(1, size // each))}


def timed(what, ours, f, *args, **kwargs):
    start = time.perf_counter()
    result = f(*args, **kwargs)
    print(json.dumps({"what": what, "ours": ours, "seconds": time.perf_counter() - start}), flush=True)
    return result


def load_mapped(path):
    for t in torch.load(path, mmap=True).values():
        t.sum()


def settle(command):
    subprocess.run([ckptfs, command, mount], check=True, stdout=subprocess.DEVNULL)


for i in range(rounds):
    sides = [False, True] if i % 2 == 0 else [True, False]
    path = {ours: os.path.join(mount if ours else plain, f"torch-{i}.pt") for ours in sides}
    for t in sd.values():
        t.mul_(1.001)  # nothing of it is stored yet
    for ours in sides:
        os.sync()
        timed("torch.save", ours, torch.save, sd, path[ours])
        settle("sync")
    for ours in sides:
        timed("torch.load", ours, torch.load, path[ours])
    for ours in sides:
        timed("torch.load mmap, sum of all", ours, load_mapped, path[ours])
    settle("evict")
    for ours in sides:
        timed("torch.load, packed", ours, torch.load, path[ours])
    for ours in sides:
        os.remove(path[ours])
