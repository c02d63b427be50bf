"""tensors.py FOLDER MIRROR: every tensor of FOLDER/*.pt and *.safetensors is a .npy file in MIRROR/FILE/ that NumPy opens, maps and
finds equal; nothing there can be changed."""
import errno
import os
import sys

import ml_dtypes
import numpy as np
import torch
from safetensors.torch import load_file

from seeded_tensors import flatten

folder, mirror = sys.argv[1:]
RAW = {torch.bfloat16: ("uint16", "bfloat16"), torch.float8_e4m3fn: ("uint8", "float8_e4m3fn"), torch.float8_e5m2: ("uint8", "float8_e5m2")}
seen = set()
for name in sorted(os.listdir(folder)):
    if name.endswith(".pt"):
        want = flatten(torch.load(os.path.join(folder, name)))
    elif name.endswith(".safetensors"):
        want = load_file(os.path.join(folder, name))
    else:
        continue
    there = os.path.join(mirror, name)
    files = {k: k.replace("%", "%25").replace("/", "%2F") + ".npy" for k in want}
    assert sorted(os.listdir(there)) == sorted(files.values()), (name, os.listdir(there), files)
    for key, t in want.items():
        path = os.path.join(there, files[key])
        t = t.detach().contiguous()
        for mode in ("r", "c", None):
            a = np.load(path, mmap_mode=mode)
            assert a.shape == tuple(t.shape), (path, a.shape, t.shape)
            raw, named = RAW.get(t.dtype, (None, None))
            if raw:
                assert a.dtype == raw, (path, a.dtype)
                b = torch.from_numpy(np.array(a)).view(t.dtype)
                assert np.array(a).view(getattr(ml_dtypes, named)).tobytes() == np.array(a).tobytes()
            else:
                b = torch.from_numpy(np.array(a))
            assert b.dtype == t.dtype, (path, b.dtype, t.dtype)
            assert torch.equal(b.reshape(-1).view(torch.uint8) if b.numel() else b.reshape(-1),
                               t.reshape(-1).view(torch.uint8) if t.numel() else t.reshape(-1)), path
            seen.add(t.dtype)
        with open(path, "rb") as f:
            data = f.read()
        assert len(data) == os.stat(path).st_size
        head = 10 + int.from_bytes(data[8:10], "little")
        assert head % 64 == 0, head
        for change in (lambda: open(path, "r+b"), lambda: os.unlink(path), lambda: os.rename(path, path + "x"), lambda: os.truncate(path, 0),
                       lambda: open(os.path.join(there, "new"), "wb"), lambda: os.mkdir(os.path.join(there, "new"))):
            try:
                change()
            except OSError as e:
                assert e.errno in (errno.EROFS, errno.EACCES, errno.EPERM), e
            else:
                raise AssertionError(path + " was changed")
print(len(seen), "types")
