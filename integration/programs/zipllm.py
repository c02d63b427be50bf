"""zipllm.py FOLDER: what the checkpoints below FOLDER take in ZipLLM's scheme, in bytes: each tensor once, by its hash; one whose name, type
and shape an earlier checkpoint had as the XOR with that one, bytes split by position, zstd (BitX), where that is smaller than ZipNN or zstd of
the tensor alone; other files each once, zstd. ZipLLM takes the base model for all; here it is the checkpoint before, which is kinder to it."""
import hashlib
import os
import re
import sys

import torch
from safetensors.torch import load_file

from codec_peers import bitx, split, zipnn, zstd
from seeded_tensors import bits, flatten

NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}

files = sorted((os.path.join(d, f) for d, _, names in os.walk(sys.argv[1]) for f in names),
               key=lambda p: [int(s) if s.isdigit() else s for s in re.split(r"(\d+)", p)])
seen, before, total = set(), {}, 0
for path in files:
    if path.endswith(".safetensors"):
        tensors = load_file(path)
    elif path.endswith(".pt"):
        tensors = flatten(torch.load(path, weights_only=True))
    else:
        tensors = {"": torch.frombuffer(bytearray(open(path, "rb").read() or b"\0"), dtype=torch.uint8)}
    for name, t in tensors.items():
        raw = bits(t).numpy().tobytes()
        digest = hashlib.sha256(raw).digest()
        key = (name, t.dtype, t.shape)
        base, before[key] = before.get(key), raw
        if digest in seen or not raw:
            continue
        seen.add(digest)
        w = t.element_size()
        ways = [len(zstd(3, split(raw, w))[0]())]
        if t.dtype in NAMES and len(raw) >= 4096:
            ways.append(len(zipnn(raw, NAMES[t.dtype])[0]()))
        if base is not None and name:
            ways.append(len(bitx(raw, base, w)[0]()))
        total += min([len(raw), *ways])
print(total)
