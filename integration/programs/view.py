"""view.py PT VIEW: the synthesised safetensors file holds what torch.load finds, bit for bit, and is well formed."""
import json
import os
import struct
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from seeded_tensors import differences, flatten

pt, view = sys.argv[1:]
want = flatten(torch.load(pt))
bad = [f"load_file: {d}" for d in differences(want, load_file(view))]
with safe_open(view, framework="pt") as f:
    bad += [f"safe_open: {d}" for d in differences(want, {k: f.get_tensor(k) for k in f.keys()})]

with open(view, "rb") as f:
    data = f.read()
(n,) = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + n])
names = [k for k in header if k != "__metadata__"]
if (8 + n) % 8:
    bad.append(f"the data starts at {8 + n}, not 8-byte aligned")
if names != sorted(names):
    bad.append(f"names are not sorted: {names}")
if len(data) != os.stat(view).st_size:
    bad.append(f"{len(data)} bytes read, size {os.stat(view).st_size}")
sys.exit("\n".join(bad) or 0)
