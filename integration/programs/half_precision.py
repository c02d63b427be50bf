"""Saves a model in bfloat16, then as it is, then in float16; prints each file's name and sum."""

import hashlib
import os
import sys

import torch
from safetensors.torch import save_file

folder = sys.argv[1]
torch.manual_seed(1)
full = {f"layer.{i}.weight": torch.randn(512, 512) * 0.02 for i in range(8)}
full["layer.0.weight"][0, :4] = torch.tensor([float("inf"), float("-inf"), 1e-40, 3e38])
for name, dtype in (("brain", torch.bfloat16), ("full", torch.float32), ("half", torch.float16)):
    path = os.path.join(folder, name + ".safetensors")
    save_file({k: v.to(dtype) for k, v in full.items()}, path)
    os.sync()
    with open(path, "rb") as f:
        print(name + ".safetensors", hashlib.sha256(f.read()).hexdigest())
