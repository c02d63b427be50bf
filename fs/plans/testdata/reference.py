"""Writes reference.json: the SHA-256 of files as torch and safetensors write them.

    python reference.py > reference.json

The sources are made here and in plans_test.go alike: files of tensors of a pattern. Of a file, the
tensors are [name, dtype, shape, pattern, seed].
"""
import hashlib, json, os, struct, sys
import numpy as np, torch
from safetensors.torch import save

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
          "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
          "F8_E5M2FNUZ": torch.float8_e5m2fnuz, "I64": torch.int64, "I32": torch.int32, "U8": torch.uint8,
          "BOOL": torch.bool}


def pattern(kind, dtype, n, seed):
    """The bytes of n numbers: of any bits, or as weights are."""
    i = np.arange(n, dtype=np.uint64) + np.uint64(seed * 1000003)
    h = (i * np.uint64(2654435761)) & np.uint64(0xffffffff)
    if kind == "bits":
        return {1: lambda: i.astype(np.uint8), 2: lambda: i.astype(np.uint16), 4: lambda: h.astype(np.uint32),
                8: lambda: (h << np.uint64(32)) | i}[torch.empty(0, dtype=DTYPES[dtype]).element_size()]().tobytes()
    if kind == "flags":
        return (h >> np.uint64(31)).astype(np.uint8).tobytes()
    sign, frac = h & np.uint64(1), h >> np.uint64(9)
    exponent = np.uint64(121) + ((h >> np.uint64(1)) & np.uint64(3))
    f32 = (sign << np.uint64(31) | exponent << np.uint64(23) | frac).astype(np.uint32)
    if dtype == "F32":
        return f32.tobytes()
    if dtype == "BF16":
        return (f32 >> 16).astype(np.uint16).tobytes()
    f16 = sign << np.uint64(15) | (exponent - np.uint64(112)) << np.uint64(10) | frac >> np.uint64(13)
    assert dtype == "F16"
    return f16.astype(np.uint16).tobytes()


def source(tensors):
    out = {}
    for name, dtype, shape, kind, seed in tensors:
        n = int(np.prod(shape, dtype=np.int64))
        b = bytearray(pattern(kind, dtype, n, seed)) or bytearray(1)
        out[name] = torch.frombuffer(b, dtype=DTYPES[dtype], count=n).reshape(shape) if n else torch.empty(shape, dtype=DTYPES[dtype])
    return out


RESULTS = {}


def add(name, tensors, metadata={"format": "pt"}):
    b = save({k: v.contiguous() for k, v in tensors.items()}, metadata)
    RESULTS[name] = [len(b), hashlib.sha256(b).hexdigest()]


FILES = json.load(open(__file__.rsplit("/", 1)[0] + "/files.json"))
bits = source(FILES["bits"])
for to in "F32", "F16", "BF16":
    add("cast " + to, {k: v.to(DTYPES[to]) if v.is_floating_point() else v for k, v in bits.items()
                       if to != "BF16" or v.dtype != torch.float64})
add("cast F32 without metadata", {k: v.to(torch.float32) if v.is_floating_point() else v for k, v in bits.items()}, None)


def shard(name, t, r, k, kv):
    """What rank r of k has of a tensor: see Shard."""
    has = lambda *ends: any(e in name for e in ends)
    if has("embed_tokens", "lm_head", "wte"):
        return t.chunk(k)[r]
    if has("k_proj", "v_proj"):
        parts = min(k, kv)
        return t.chunk(parts)[r * parts // k]
    if has("q_proj", "gate_proj", "up_proj"):
        return t.chunk(k)[r]
    if has("o_proj.weight", "down_proj.weight"):
        return t.chunk(k, 1)[r]
    if has("c_attn"):
        return torch.cat([x.chunk(k, -1)[r] for x in t.chunk(3, -1)], -1)
    if has("c_proj.weight"):
        return t.chunk(k)[r]
    if has("c_fc"):
        return t.chunk(k, -1)[r]
    return t


for name in "llama", "qwen2", "gpt2":
    tensors = source(FILES[name])
    for k in 2, 4:
        for r in 0, k - 1:
            add(f"shard {name} {r}/{k}", {n: shard(n, t, r, k, 2) for n, t in tensors.items()})


def soup(files, weights=None):
    out = {}
    for k, t in files[0].items():
        if not t.is_floating_point():
            out[k] = t
            continue
        s = t.float() if weights is None else t.float() * weights[0]
        for i, f in enumerate(files[1:], 1):
            s = s + (f[k].float() if weights is None else f[k].float() * weights[i])
        out[k] = (s / len(files) if weights is None else s).to(t.dtype)
    return out


parts = [source(FILES["soup " + str(i)]) for i in range(3)]
add("mean 0 1 2", soup(parts))
add("mean 2 0", soup([parts[2], parts[0]]))
add("sum 0.3 0.6 -0.1", soup(parts, [0.3, 0.6, -0.1]))


def between(a, b, t):
    """As mergekit interpolates, with sines and arc cosines rounded from double precision: see Slerp."""
    from mergekit.merge_methods.slerp import slerp
    kept = torch.acos, torch.sin
    torch.acos, torch.sin = (lambda x, f=f: f(x.double()).float() for f in kept)
    try:
        return {k: slerp(torch.tensor([t]), x[None], b[k][None])[0] if x.is_floating_point() else x for k, x in a.items()}
    finally:
        torch.acos, torch.sin = kept


torch.set_num_threads(1)
ways = [source(FILES["slerp " + str(i)]) for i in range(2)]
for t in 0.4, 0, 1.25:
    add(f"slerp {t}", between(*ways, t))


def merge(base, lora, scaling, transposed):
    """As PEFT merges: see LoraLayer.merge and get_delta_weight."""
    out = dict(base)
    for k in base:
        a = lora.get("base_model.model." + k.removesuffix(".weight") + ".lora_A.weight")
        if a is not None:
            b = lora["base_model.model." + k.removesuffix(".weight") + ".lora_B.weight"]
            delta = b.float() @ a.float()
            out[k] = base[k].clone()
            out[k] += (delta.T if transposed else delta) * scaling
    return out


for name in "llama", "gpt2", "qwen2":
    add(f"merge {name}", merge(source(FILES[name]), source(FILES["lora " + name]), 24 / 8 * 0.7, name == "gpt2"))


def consolidate(folder):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.format_utils import _EmptyStateDictLoadPlanner, _load_state_dict
    sd = {}
    _load_state_dict(sd, dcp.FileSystemReader(folder), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    if len(sd) == 1:
        sd = sd[list(sd)[0]]

    def flatten(x, at):
        for k, v in x.items() if isinstance(x, dict) else enumerate(x):
            if isinstance(v, (dict, list)):
                yield from flatten(v, at + [str(k)])
            elif isinstance(v, torch.Tensor):
                yield ".".join(at + [str(k)]), v
    return dict(flatten(sd, []))


for name in "one", "two":
    add("dcp " + name, consolidate(__file__.rsplit("/", 4)[0] + "/formats/testdata/dcp/" + name))


def zero(folder):
    import contextlib
    os.environ |= {"DS_ACCELERATOR": "cpu", "DEEPSPEED_LOG_LEVEL": "error"}
    with contextlib.redirect_stdout(sys.stderr):
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
        out = get_fp32_state_dict_from_zero_checkpoint(*folder.rsplit("/", 1))
    return {k: (t.float() if t.is_floating_point() else t).clone() for k, t in out.items()}


for name in "stage1", "stage2", "stage3":
    add("zero " + name, zero(__file__.rsplit("/", 4)[0] + "/formats/testdata/zero/" + name))

json.dump(RESULTS, sys.stdout, indent=1)
print()
