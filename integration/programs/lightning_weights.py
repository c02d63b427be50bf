"""lightning_weights.py CHECKPOINT WEIGHTS …: of each pair the second file has the tensors of the first one's state_dict,
and Lightning's optimizer's none."""
import sys

import torch
from safetensors.torch import load_file

for checkpoint, weights in zip(sys.argv[1::2], sys.argv[2::2]):
    want = {"state_dict." + k: v for k, v in torch.load(checkpoint, weights_only=False)["state_dict"].items()}
    got = load_file(weights)  # and what callbacks keep in tensors
    if set(want) != {k for k in got if k.startswith("state_dict.")} or any(k.startswith("optimizer_states") for k in got):
        sys.exit(f"{weights}: {sorted(got)}")
    for name, w in want.items():
        if w.dtype != got[name].dtype or not torch.equal(w, got[name]):
            sys.exit(f"{weights}: {name} differs")
