"""zipllm.py FOLDER: what the checkpoints below FOLDER take in ZipLLM's scheme, in bytes: each tensor once, by its hash; one whose name, type
and shape an earlier checkpoint had as the XOR with that one, bytes split by position, zstd (BitX), where that is smaller than ZipNN or zstd of
the tensor alone; other files each once, zstd. ZipLLM takes the base model for all; here it is the checkpoint before, which is kinder to it.

zipllm.py --each FILE...: the same of files in this order, GGUF too, a line of JSON each: {"zipllm": bytes, "zstd": the file by zstd -3}.
One that is called alone:FILE is forgotten then."""
import hashlib
import json
import os
import re
import sys

import torch
from safetensors.torch import load_file

from codec_peers import bitx, split, zipnn, zstd
from seeded_tensors import bits, flatten

NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
WIDTHS = {"F32": 4, "BF16": 2, "F16": 2}


def tensors(path):
    """Each tensor of a file: name, type, shape, bytes of an element, raw bytes."""
    if path.endswith(".gguf"):
        import gguf

        for t in gguf.GGUFReader(path).tensors:
            kind = t.tensor_type.name
            yield t.name, kind, tuple(t.shape), WIDTHS.get(kind, 1), t.data.tobytes()
        return
    if path.endswith(".safetensors"):
        all = load_file(path)
    elif path.endswith(".pt"):
        all = flatten(torch.load(path, weights_only=True))
    else:
        all = {"": torch.frombuffer(bytearray(open(path, "rb").read() or b"\0"), dtype=torch.uint8)}
    for name, t in all.items():
        yield name, NAMES.get(t.dtype, str(t.dtype)), t.shape, t.element_size(), bits(t).numpy().tobytes()


seen, before = set(), {}


def takes(path):
    """What a file adds, and how many of its bytes are tensors'."""
    total = known = 0
    for name, kind, shape, w, raw in tensors(path):
        known += len(raw)
        digest = hashlib.sha256(raw).digest()
        key = (name, kind, shape)
        base, before[key] = before.get(key), raw
        if digest in seen or not raw:
            continue
        seen.add(digest)
        ways = [len(zstd(3, split(raw, w))[0]())]
        if kind in WIDTHS and len(raw) >= 4096:
            ways.append(len(zipnn(raw, kind)[0]()))
        if base is not None and name:
            ways.append(len(bitx(raw, base, w)[0]()))
        total += min([len(raw), *ways])
    return total, known


if sys.argv[1] == "--each":
    for arg in sys.argv[2:]:
        path = arg.removeprefix("alone:")
        held = set(seen), dict(before)
        with open(path, "rb") as f:
            raw = f.read()
        total, known = takes(path)
        head = raw[: len(raw) - known]
        print(json.dumps({"zipllm": total + len(zstd(3, head)[0]()), "zstd": len(zstd(3, raw)[0]())}), flush=True)
        if path != arg:
            seen, before = held
else:
    files = sorted((os.path.join(d, f) for d, _, names in os.walk(sys.argv[1]) for f in names),
                   key=lambda p: [int(s) if s.isdigit() else s for s in re.split(r"(\d+)", p)])
    print(sum(takes(path)[0] for path in files))
