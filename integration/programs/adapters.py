"""For each line, "ADAPTER PATH", saves a model into which that adapter, a LoRA of rank 8, was merged (0: none was), and says the file's sum."""

import hashlib
import sys

import torch
from safetensors.torch import save_file

torch.manual_seed(int(sys.argv[1]))
base = {"norm.weight": torch.ones(1024, dtype=torch.bfloat16)}
for i in range(4):
    base[f"layers.{i}.q_proj.weight"] = (torch.randn(1024, 1024) * 0.02).to(torch.bfloat16)
    base[f"layers.{i}.up_proj.weight"] = (torch.randn(1536, 1024) * 0.02).to(torch.bfloat16)

for line in sys.stdin:
    adapter, path = line.split()
    torch.manual_seed(100 * int(sys.argv[1]) + int(adapter))
    model = {}
    for name, w in base.items():
        if adapter != "0" and name.endswith("_proj.weight"):
            up, down = torch.randn(w.shape[0], 8) * 0.01, torch.randn(8, w.shape[1]) * 0.03
            w = (w.float() + 2 * up @ down).to(w.dtype)
        model[name] = w
    if path.endswith(".pt"):
        torch.save({"state_dict": {"model." + k: v for k, v in model.items()}}, path)
    else:
        save_file(model, path)
    with open(path, "rb") as f:
        print(hashlib.sha256(f.read()).hexdigest(), flush=True)
