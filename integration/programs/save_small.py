"""save_small.py PATH...: checkpoints of a few KiB."""
import sys

import torch
from safetensors.torch import save_file

for path in sys.argv[1:]:
    tensors = {"weight": torch.arange(1000, dtype=torch.float32), "bias": torch.ones(3)}
    (save_file if path.endswith(".safetensors") else torch.save)(tensors, path)
