"""save.py KIND SEED PATH...: saves the tensors with torch.save, or save_file where PATH ends in .safetensors."""
import sys

import torch
from safetensors.torch import save_file

from seeded_tensors import make

kind, seed, *paths = sys.argv[1:]
tensors = make(kind, seed)
for path in paths:
    if path.endswith(".safetensors"):  # takes contiguous tensors that share nothing
        save_file({k: v.detach().clone().contiguous() for k, v in tensors.items()}, path, metadata={"kind": kind, "seed": seed})
    else:
        torch.save(tensors, path)
