"""sets.py FOLDER: one state dict as sharded sets of several files, of safetensors and of torch.save, as a variant, and in one file; and the next step."""
import os
import sys

import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import save_file

folder = sys.argv[1]
g = torch.Generator().manual_seed(1)
state = {f"layers.{i}.weight": torch.randn(256, 64, generator=g) for i in range(10)}
for step in ("1", "2"):
    if step == "2":
        state["layers.3.weight"] = state["layers.3.weight"] + 1
    for name, size, safe in (("two", 400_000, True), ("four", 200_000, True), ("bin", 200_000, False)):
        at = os.path.join(folder, name, step)
        os.makedirs(at)
        save_torch_state_dict(state, at, max_shard_size=size, safe_serialization=safe)
    at = os.path.join(folder, "variant", step)
    os.makedirs(at)
    save_torch_state_dict(state, at, max_shard_size=400_000, filename_pattern="model.fp16{suffix}.safetensors")
    if step == "2":  # as transformers and diffusers call it
        os.rename(os.path.join(at, "model.fp16.safetensors.index.json"), os.path.join(at, "model.safetensors.index.fp16.json"))
    at = os.path.join(folder, "one", step)
    os.makedirs(at)
    save_file(state, os.path.join(at, "model.safetensors"))
