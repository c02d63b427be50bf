"""zipllm.py FOLDER: what the checkpoints below FOLDER take in ZipLLM's scheme, in bytes: each tensor once, by its hash; one whose name, type
and shape an earlier checkpoint had as the XOR with that one, bytes split by position, zstd (BitX), where that is smaller than ZipNN or zstd of
the tensor alone; other files each once, zstd. ZipLLM takes the base model for all; here it is the checkpoint before, which is kinder to it.

zipllm.py --each FILE...: the same of files in this order, GGUF too, a line of JSON each: {"zipllm": bytes, "tstore": bytes, "zstd": the
file by zstd -3}. One that is called alone:FILE is forgotten then.

TStore (arXiv 2604.17104) finds by a sketch of its bits which tensor is nearest, whatever its name, and stores the XOR with it. There is
no code of it to run. Here the nearest is the one of which most bits are equal, of all tensors before that have the same type and size:
a sketch finds none that is nearer. Half a mebibyte of each is compared, in eight places."""
import hashlib
import json
import os
import re
import sys

import numpy as np
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
    if path.endswith(".h5"):
        import h5py

        found = {}
        with h5py.File(path) as f:
            f.visititems(lambda name, d: found.update({name: torch.from_numpy(d[()])})
                         if isinstance(d, h5py.Dataset) and d.dtype.kind == "f" and d.shape else None)
        all = found
    elif path.endswith(".safetensors"):
        all = load_file(path)
    elif path.endswith(".pt"):
        all = flatten(torch.load(path, weights_only=True))
    else:
        all = {"": torch.frombuffer(bytearray(open(path, "rb").read() or b"\0"), dtype=torch.uint8)}
    for name, t in all.items():
        yield name, NAMES.get(t.dtype, str(t.dtype)), t.shape, t.element_size(), bits(t).numpy().tobytes()


def sample(raw):
    """Bytes of eight places."""
    a = np.frombuffer(raw, np.uint8)
    return a if len(a) <= 1 << 19 else np.concatenate([a[i : i + (1 << 16)] for i in np.linspace(0, len(a) - (1 << 16), 8).astype(int)])


def nearest(others, raw):
    """The one of which most bits are equal; None if there is none."""
    mine, best, least = sample(raw), None, None
    for other in others:
        bits_off = int(np.bitwise_count(mine ^ sample(other)).sum())
        if least is None or bits_off < least:
            best, least = other, bits_off
    return best


seen, before, alike = set(), {}, {}


def takes(path):
    """What a file adds by either scheme, and how many of its bytes are tensors'."""
    total = by_bits = known = 0
    for name, kind, shape, w, raw in tensors(path):
        known += len(raw)
        digest = hashlib.sha256(raw).digest()
        key = (name, kind, shape)
        base, before[key] = before.get(key), raw
        if digest in seen or not raw:
            continue
        seen.add(digest)
        near = nearest(alike.get((kind, len(raw)), ()), raw) if len(raw) >= 4096 else None
        alike[kind, len(raw)] = (*alike.get((kind, len(raw)), ()), raw)
        ways = [len(zstd(3, split(raw, w))[0]())]
        if kind in WIDTHS and len(raw) >= 4096:
            ways.append(len(zipnn(raw, kind)[0]()))
        by_bits += min([len(raw), *ways] + ([len(bitx(raw, near, w)[0]())] if near is not None else []))
        if base is not None and name:
            ways.append(len(bitx(raw, base, w)[0]()))
        total += min([len(raw), *ways])
    return total, by_bits, known


if sys.argv[1] == "--each":
    for arg in sys.argv[2:]:
        path = arg.removeprefix("alone:")
        held = set(seen), dict(before), dict(alike)
        with open(path, "rb") as f:
            raw = f.read()
        total, by_bits, known = takes(path)
        head = len(zstd(3, raw[: max(0, len(raw) - known)])[0]())
        print(json.dumps({"zipllm": total + head, "tstore": by_bits + head, "zstd": len(zstd(3, raw)[0]())}), flush=True)
        if path != arg:
            seen, before, alike = held
else:
    files = sorted((os.path.join(d, f) for d, _, names in os.walk(sys.argv[1]) for f in names),
                   key=lambda p: [int(s) if s.isdigit() else s for s in re.split(r"(\d+)", p)])
    print(sum(takes(path)[0] for path in files))
