"""partial.py FILE TENSORS HOW: reads a part of FILE, a safetensors file, and says how many bytes, and in how many seconds. TENSORS is the
folder with its tensors as .npy files. HOW is tensor (one of those), map (a MiB out of one, mapped), slice (a MiB by safe_open), get (one by
safe_open) or all (the file)."""
import json
import os
import sys
import time

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file

path, tensors, how = sys.argv[1:]
with safe_open(path, framework="numpy") as f:
    name = sorted(f.keys())[len(f.keys()) // 2]
MIB = 1 << 18  # elements of fp32

start = time.perf_counter()
if how == "all":
    n = sum(a.nbytes for a in load_file(path).values())
elif how in ("tensor", "map"):
    a = np.load(os.path.join(tensors, name + ".npy"), mmap_mode="r" if how == "map" else None)
    n = np.array(a[MIB:2 * MIB] if how == "map" else a).nbytes
else:
    with safe_open(path, framework="numpy") as f:
        n = (f.get_tensor(name) if how == "get" else f.get_slice(name)[MIB:2 * MIB]).nbytes
print(json.dumps({"bytes": n, "seconds": time.perf_counter() - start}))
