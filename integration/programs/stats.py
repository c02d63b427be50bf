"""stats.py FILE JSON TENSOR NPY: JSON, what `show --stats --json` printed of FILE, is what torch says of its tensors; NPY is TENSOR of it."""
import json
import math
import sys

import numpy as np
import torch

from seeded_tensors import flatten

path, shown, name, npy = sys.argv[1:]
want = flatten(torch.load(path))
with open(shown) as f:
    got = {t["name"]: t for t in json.load(f)["tensors"]}
assert got.keys() == want.keys(), (got.keys(), want.keys())
for k, t in want.items():
    s = got[k]["stats"]
    x = torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
    x = x.double().reshape(-1) if x.dtype != torch.uint64 else torch.from_numpy(x.numpy().astype("float64")).reshape(-1)
    finite = x[torch.isfinite(x)]
    assert s["count"] == x.numel() and s["nan"] == int(torch.isnan(x).sum()) and s["inf"] == int(torch.isinf(x).sum()), (k, s)
    assert s["zero"] == int((x == 0).sum()), (k, s)
    if finite.numel():
        assert s["min"] == finite.min().item() and s["max"] == finite.max().item(), (k, s)
        assert math.isclose(s["mean"], finite.mean().item(), rel_tol=1e-6, abs_tol=1e-6 * max(abs(s["min"]), abs(s["max"]))), (k, s)
a = np.load(npy)
assert a.tobytes() == want[name].contiguous().view(torch.uint8).numpy().tobytes() if want[name].numel() else a.size == 0
print(len(want), "tensors")
