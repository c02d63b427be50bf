"""time_torch.py BYTES ROUNDS PLAIN MOUNT STORE CKPTFS: times torch.save and ways to load in both folders, now one first and
now the other. Cold is without the raw copy, and nothing cached of the segments, beside a plain file of which nothing is cached.
Prints one JSON object a figure: {"what", "ours", "seconds"}."""
import json
import os
import subprocess
import sys
import time

import safetensors.torch
import torch

size, rounds = int(sys.argv[1]), int(sys.argv[2])
plain, mount, store, ckptfs = sys.argv[3:]
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


def load_safetensors(path):
    for t in safetensors.torch.load_file(path).values():
        t.sum()


def cool(path):
    with open(path, "rb") as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cold(what, load, path, sides):
    """One figure of each side, of a file that was just saved, or was read before."""
    settle("evict")
    os.sync()
    for folder, _, names in os.walk(os.path.join(store, "segments")):
        for name in names:
            cool(os.path.join(folder, name))
    for ours in sides:
        cool(path[ours])
        timed(what, ours, load, path[ours])


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
    cold("torch.load, packed and cold", torch.load, path, sides)
    cold("torch.load mmap, sum of all, packed and cold", load_mapped, path, sides)
    cold("torch.load mmap, opened, packed and cold", lambda p: torch.load(p, mmap=True), path, sides)
    for ours in sides:
        os.remove(path[ours])
    path = {ours: os.path.join(mount if ours else plain, f"torch-{i}.safetensors") for ours in sides}
    for ours in sides:
        safetensors.torch.save_file(sd, path[ours])
        settle("sync")
    cold("load_file, sum of all, packed and cold", load_safetensors, path, sides)
    for ours in sides:
        os.remove(path[ours])
