"""check.py KIND SEED PATH...: loads each file in every way there is, and compares bit for bit with what was saved."""
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from seeded_tensors import differences, flatten, make

kind, seed, *paths = sys.argv[1:]
want = flatten(make(kind, seed))
bad = []


def compare(path, how, got):
    bad.extend(f"{path}: {how}: {d}" for d in differences(want, flatten(got)))


for path in paths:
    if path.endswith(".safetensors"):
        compare(path, "load_file", load_file(path))
        with safe_open(path, framework="pt") as f:
            compare(path, "safe_open", {k: f.get_tensor(k) for k in f.keys()})
    else:
        compare(path, "torch.load", torch.load(path))
        compare(path, "torch.load mmap", torch.load(path, mmap=True))
sys.exit("\n".join(bad) or 0)
