"""payload.py BYTES PT SAFETENSORS: the same fp32 tensors, some 16 MiB each and BYTES in all, in both formats."""
import sys

import torch
from safetensors.torch import save_file

size, pt, st = int(sys.argv[1]), *sys.argv[2:]
each = min(16 << 20, size)
g = torch.Generator().manual_seed(0)
sd = {f"layers.{i}.weight": torch.randn(each // 4, generator=g) * 0.02 for i in range(size // each)}
torch.save(sd, pt)
save_file(sd, st)
