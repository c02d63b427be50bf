"""zero_optimizer.py FOLDER WEIGHTS…: each file WEIGHTS has the tensors that DeepSpeed's zero_to_fp32 makes of the step of
ZeRO in FOLDER."""
import contextlib
import os
import sys

os.environ |= {"DS_ACCELERATOR": "cpu", "DEEPSPEED_LOG_LEVEL": "error"}
import torch
from safetensors.torch import load_file

with contextlib.redirect_stdout(sys.stderr):
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    folder = sys.argv[1].rstrip("/")
    want = get_fp32_state_dict_from_zero_checkpoint(os.path.dirname(folder), os.path.basename(folder))
want = {k: t.float() if t.is_floating_point() else t for k, t in want.items()}
for path in sys.argv[2:]:
    got = load_file(path)
    if got.keys() != want.keys():
        sys.exit(f"{path} has {sorted(got)}, want {sorted(want)}")
    for name, t in want.items():
        if got[name].dtype != t.dtype or not torch.equal(got[name], t):
            sys.exit(f"{path}: {name} is {got[name]}, want {t}")
