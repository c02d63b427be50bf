"""The tensors that the programs save, made from a seed alone, so that whoever reads needs no copy to compare with."""
import collections

import torch


def rand(g, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=g, dtype=torch.float32).to(dtype)


def plain(seed, tensors=8, numel=262144):
    """Equal fp32 tensors of 1 MiB each by default; tensor i depends on the seed and i only."""
    sd = collections.OrderedDict()
    for i in range(tensors):
        g = torch.Generator().manual_seed(seed * 1000 + i)
        sd[f"layers.{i}.weight"] = rand(g, numel)
    return sd


def zoo(seed=0):
    """One of each kind of tensor that a state dict may hold."""
    g = torch.Generator().manual_seed(seed)
    sd = collections.OrderedDict()
    sd["embed.weight"] = rand(g, 512, 256)
    sd["head.weight"] = sd["embed.weight"]  # tied: one storage, two names
    sd["head.transposed"] = sd["embed.weight"].t()
    base = rand(g, 128, 96)
    sd["strided"] = base[1::2, 3::5]
    sd["slice"] = base[10:20]
    sd["expanded"] = rand(g, 1, 64).expand(8, 64)
    sd["channels_last"] = rand(g, 2, 16, 9, 9).to(memory_format=torch.channels_last)
    sd["parameter"] = torch.nn.Parameter(rand(g, 33, 7))
    for name in ("bfloat16", "float16", "float64"):
        sd[name] = rand(g, 129, 65).to(getattr(torch, name))
    sd["float8_e4m3fn"] = rand(g, 64, 64).to(torch.float8_e4m3fn)
    for name in ("int8", "uint8", "int16", "int32", "int64"):
        sd[name] = torch.randint(0, 100, (37, 11), generator=g).to(getattr(torch, name))
    sd["bool"] = torch.rand(1001, generator=g) > 0.5
    sd["complex64"] = torch.complex(rand(g, 50), rand(g, 50))
    sd["scalar"] = torch.tensor(3.25)
    sd["num_batches_tracked"] = torch.tensor(12345)
    sd["zero_size"] = torch.empty(0, 4)
    sd["special"] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-45])
    sd["big"] = rand(g, 700, 1000)
    return sd


def nested(seed=0):
    """What a training loop saves: dicts in dicts, lists, numbers and strings between the tensors."""
    g = torch.Generator().manual_seed(seed)
    return {
        "model": collections.OrderedDict(weight=rand(g, 300, 400), bias=rand(g, 400)),
        "optimizer": {
            "state": {0: {"step": torch.tensor(7.0), "exp_avg": rand(g, 300, 400)}, 1: {"exp_avg": rand(g, 400)}},
            "param_groups": [{"lr": 0.1, "params": [0, 1]}],
        },
        "epoch": 3,
        "name": "nested",
        "history": [rand(g, 5), rand(g, 6)],
    }


def flatten(value, prefix=""):
    """Every tensor in value by the names of the way to it, joined by dots."""
    if isinstance(value, torch.Tensor):
        return {prefix: value}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    flat = {}
    for key, v in items:
        flat.update(flatten(v, f"{prefix}.{key}" if prefix else str(key)))
    return flat


def bits(t):
    return t.detach().contiguous().reshape(-1).view(torch.uint8) if t.numel() else torch.empty(0, dtype=torch.uint8)


def differences(want, got):
    """The names under which two flat dicts of tensors differ, bit for bit, with a word why."""
    bad = [f"{k}: missing" for k in want.keys() - got.keys()] + [f"{k}: not wanted" for k in got.keys() - want.keys()]
    for k in want.keys() & got.keys():
        a, b = want[k], got[k]
        if a.dtype != b.dtype or a.shape != b.shape:
            bad.append(f"{k}: {a.dtype} {tuple(a.shape)}, got {b.dtype} {tuple(b.shape)}")
        elif not torch.equal(bits(a), bits(b)):
            bad.append(f"{k}: other bytes")
    return sorted(bad)


def make(kind, seed):
    return {"zoo": zoo, "plain": plain, "nested": nested}[kind](int(seed))
