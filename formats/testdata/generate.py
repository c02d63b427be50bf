#!/usr/bin/env python3
"""Write the fixtures of the format parsers with the real libraries.

    python3 generate.py [FOLDER]        # needs torch, safetensors, numpy and lightning; FOLDER is this one by default

  torch/*            torch.save, as a program would call it, one file for each thing that a parser can get wrong
  safetensors/*      safetensors.torch.save_file and safetensors.numpy.save_file
  pickle/*           one object in protocols 0 to 5, and what scikit-learn's users pickle
  truth.json         what the libraries say lies in each file: name -> dtype, shape, stride, SHA-256 of the elements
                     in row-major order. The Go tests gather the same bytes through the layout and compare.

The layouts expected of the parsers (*.layout.json, *.tree.txt) are written by the Go tests with -update, not here.
All files are deterministic but torch/legacy*.pt, whose keys are memory addresses, torch/script.pt and torch/exported.pt2; these
are kept when they exist.
"""

import collections
import hashlib
import io
import json
import os
import pickle
import shutil
import sys
import tempfile
import warnings

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch
from torch import nn
from torch.utils.serialization import config

warnings.simplefilter("ignore")
OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
truth = {}

CODES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.uint16: "U16",
    torch.float16: "F16", torch.bfloat16: "BF16", torch.int32: "I32", torch.uint32: "U32", torch.float32: "F32",
    torch.int64: "I64", torch.uint64: "U64", torch.float64: "F64", torch.complex64: "C64", torch.complex128: "C128",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.float8_e8m0fnu: "F8_E8M0",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ", torch.float8_e5m2fnuz: "F8_E5M2FNUZ", torch.float4_e2m1fn_x2: "F4",
    torch.qint8: "I8", torch.quint8: "U8", torch.qint32: "I32",
}


def describe(t):
    """A tensor's type and elements, read by torch itself and not through the storage."""
    code = CODES[t.dtype]
    t = (t.int_repr() if t.is_quantized else t).detach().as_subclass(torch.Tensor)
    raw = bytes(t.contiguous().reshape(-1).view(torch.uint8).numpy())
    shape, stride = list(t.shape), list(t.stride())
    if code == "F4":  # torch counts pairs, safetensors elements
        shape[-1] *= 2
    return {"dtype": code, "shape": shape, "stride": stride, "sha256": hashlib.sha256(raw).hexdigest()}


def flatten(obj, path=()):
    """Names and tensors below dicts, lists and tuples."""
    if isinstance(obj, torch.Tensor):
        yield ".".join(path), obj
    elif isinstance(obj, dict):
        for k, v in obj.items():
            if isinstance(k, (str, int)):
                yield from flatten(v, path + (str(k),))
    elif isinstance(obj, (list, tuple)):
        for i, v in enumerate(obj):
            yield from flatten(v, path + (str(i),))


def save(name, obj, stem=None, names=None, **kwargs):
    """torch.save to a path with the stem (by default the fixture's), then move it to torch/name."""
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, stem or name)
        torch.save(obj, path, **kwargs)
        shutil.move(path, os.path.join(OUT, "torch", name))
    tensors = dict(flatten(obj)) if names is None else names
    truth["torch/" + name] = {n: describe(t) for n, t in tensors.items()}


def once(name, obj):
    """torch.save in the old format, whose bytes differ from run to run: kept when it is there."""
    path = os.path.join(OUT, "torch", name)
    if not os.path.exists(path):
        torch.save(obj, path, _use_new_zipfile_serialization=False)
    truth["torch/" + name] = {n: describe(t) for n, t in flatten(obj)}


def ramp(*shape, dtype=torch.float32):
    n = int(np.prod(shape, dtype=np.int64))
    return torch.arange(n, dtype=torch.float32).reshape(shape).to(dtype)


def of_type(d):
    """Six elements of type d, or six pairs."""
    raw = torch.arange(6, dtype=torch.uint8).repeat(16)[: 6 * d.itemsize].clone()
    return raw.to(d) if d is torch.bool else raw.view(d)


def attribute(name):
    """The way to a Sequential's parameter or buffer in the module's pickle."""
    layer, leaf = name.split(".")
    kind = "_parameters" if leaf in ("weight", "bias") else "_buffers"
    return "_modules.%s.%s.%s" % (layer, kind, leaf)


def lightning_checkpoint(net):
    """What a Trainer saves, with the states that Lightning's own callbacks give."""
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

    callbacks = [ModelCheckpoint(dirpath=".", monitor=name) for name in ("val_loss", "val/acc", None, "text")]
    for callback, score in zip(callbacks, (torch.tensor(0.3125), torch.tensor(7, dtype=torch.int64), None, torch.ones(2))):
        callback.dirpath, callback.current_score, callback.best_model_score = "checkpoints", score, torch.tensor(0.25)
    callbacks.append(EarlyStopping(monitor="train_loss"))
    return {"epoch": 3, "global_step": 12, "pytorch-lightning_version": "2.6.6", "state_dict": net.state_dict(),
            "callbacks": {c.state_key: c.state_dict() for c in callbacks}, "optimizer_states": [], "lr_schedulers": []}


def torch_files():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2, bias=False))
    save("flat.pt", net.state_dict())
    save("flat.other-stem.v2.ckpt", net.state_dict())
    save("no_extension", net.state_dict())
    save("unicode.pt", {"größe": ramp(3), "重み": ramp(2)}, stem="モデル é.pt")
    save("module.pt", net, names={attribute(k): v for k, v in net.state_dict().items()})

    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    net(ramp(4, 4)).sum().backward()
    opt.step()
    save("adamw.pt", {
        "epoch": 3, "best": 0.25, "name": "run", "done": False, "none": None, "big": 1 << 80,
        "model": net.state_dict(), "optimizer": opt.state_dict(), "history": [(0, 1.5), (1, 0.5)],
        "sizes": torch.Size([3, 4]), "device": torch.device("cpu"), "dtype": torch.bfloat16, "set": {1, 2},
    })

    shared = ramp(6, 2)
    save("tied.pt", {"embed.weight": shared, "head.weight": shared, "head.row": shared[2], "flat": shared.view(-1)})
    base = ramp(4, 6)
    save("views.pt", {
        "transposed": base.t(), "rows": base[1:3], "columns": base[:, 2:4], "every_other": base[::2, ::3],
        "expanded": ramp(3).expand(2, 3), "permuted": ramp(2, 3, 4).permute(2, 0, 1), "diagonal": base.diagonal(),
        "channels_last": ramp(1, 3, 2, 2).to(memory_format=torch.channels_last), "one": base[3, 5],
        "offset16": ramp(8, dtype=torch.bfloat16)[3:5],
    })
    save("dtypes.pt", {str(d): of_type(d) for d in CODES if not str(d).startswith("torch.q")})
    save("unknown_dtypes.pt", {"half": torch.zeros(2, dtype=torch.complex32), "known": ramp(2)},
         names={"known": ramp(2)})
    save("scalars_empty.pt", {
        "scalar": torch.tensor(2.5), "step": torch.tensor(7), "empty": torch.empty(0), "empty2d": torch.empty(3, 0, 2),
        "empty_view": ramp(4)[4:], "flag": torch.tensor(True), "": ramp(1),
    })
    stateful = nn.Parameter(ramp(2, 2))
    stateful.tag = "mine"
    save("params.pt", {
        "p": nn.Parameter(ramp(3)), "frozen": nn.Parameter(ramp(2), requires_grad=False), "stateful": stateful,
        "buffer": nn.Buffer(ramp(4)), "grad": ramp(2).requires_grad_(),
    })
    coo, csr = torch.eye(3).to_sparse_coo(), torch.eye(2).to_sparse_csr()
    quant = torch.quantize_per_tensor(ramp(4), 0.5, 1, torch.qint8)
    channel = torch.quantize_per_channel(ramp(2, 2), torch.tensor([0.5, 2.0]), torch.tensor([0, 1]), 0, torch.quint8)
    nested = torch.nested.nested_tensor([ramp(2), ramp(3)])
    special = {
        "quant": quant, "channel": channel, "coo": coo, "csr": csr, "nested": nested,
        "conj": torch.ones(2, dtype=torch.complex64).conj(), "neg": torch.ones(2, dtype=torch.complex64).conj().imag,
        "meta": torch.empty(3, device="meta"), "plain": ramp(2),
    }
    save("special.pt", special, names={
        "quant": quant, "channel": channel, "plain": special["plain"],
        "coo.indices": coo._indices(), "coo.values": coo._values(),
        "csr.crow_indices": csr.crow_indices(), "csr.col_indices": csr.col_indices(), "csr.values": csr.values(),
        "nested.buffer": nested.values(), "nested.sizes": nested._nested_tensor_size(),
        "nested.strides": nested._nested_tensor_strides(), "nested.offsets": nested._nested_tensor_storage_offsets(),
    })
    a, b, c, d = ramp(1), ramp(2), ramp(3), ramp(4)
    save("keys.pt", collections.OrderedDict([
        (0, a), ("nested", {"x": {"y": b}}), ("nested.x.y", c), ("nested.x", {"y": a}), ((1, 2), d), (None, d),
        (True, d), (2.5, d), ("dots.in.name", b), ("0", b), ("with \"quotes\"\n", c), ("nested.x.y#2", d),
    ]), names={
        "0": a, "0#2": b, "nested.x.y": c, "nested.x.y#3": a, "nested.x.y#4": b, "nested.x.y#2": d,
        "dots.in.name": b, "with \"quotes\"\n": c,
    })
    save("list.pt", [ramp(1), (ramp(2), {"k": ramp(3)}), []])
    save("tensor.pt", ramp(2, 3))
    save("no_tensors.pt", {"lr": 0.1})
    save("lightning.ckpt", lightning_checkpoint(net))
    save("default_dict.pt", collections.defaultdict(list, {"a": [ramp(2)]}), names={"a.0": ramp(2)})
    save("storage.pt", {"raw": ramp(4).untyped_storage()}, names={})
    save("protocol4.pt", net.state_dict(), pickle_protocol=4)
    save("protocol5.pt", net.state_dict(), pickle_protocol=5)
    torch.serialization.set_crc32_options(False)
    save("no_crc.pt", net.state_dict())
    torch.serialization.set_crc32_options(True)
    for alignment in (1, 4096):
        config.save.storage_alignment = alignment
        save("align%d.pt" % alignment, {"a": ramp(3), "b": ramp(2)})
    config.save.storage_alignment = 64
    with torch.serialization.skip_data():
        save("skip_data.pt", {"a": ramp(3)}, names={"a": torch.zeros(3)})
    buf = io.BytesIO()
    torch.save(net.state_dict(), buf)
    write("torch/file_object.pt", buf.getvalue())
    truth["torch/file_object.pt"] = {n: describe(t) for n, t in flatten(net.state_dict())}

    class Wrapper(torch.Tensor):
        """A subclass without a storage of its own, as DTensor and torchao have them."""

        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*(a.inner if isinstance(a, cls) else a for a in args), **(kwargs or {}))

    Wrapper.__module__, Wrapper.__qualname__ = "wrapper", "Wrapper"
    sys.modules["wrapper"] = type(sys)("wrapper")
    sys.modules["wrapper"].Wrapper = Wrapper
    inner = ramp(2, 3)
    save("subclass.pt", {"w": Wrapper(inner), "plain": ramp(2)}, names={"w.inner": inner, "plain": ramp(2)})

    shared = ramp(6, 2)
    once("legacy.pt", {"a": ramp(3)})
    objects = {
        "model": net.state_dict(), "shared": shared, "row": shared[2], "t": shared.t(), "empty": torch.empty(0),
        "types": {str(d): of_type(d) for d in CODES if not str(d).startswith("torch.q")}, "epoch": 3,
    }
    once("legacy_all.pt", objects)

    import torch.distributed.checkpoint as dcp

    with tempfile.TemporaryDirectory() as tmp:
        state = {"model": {"w": ramp(3, 4), "b": ramp(3, dtype=torch.bfloat16)}, "epoch": 3, "opt": {"m": torch.ones(2, 2)}}
        dcp.save(state, checkpoint_id=tmp, no_dist=True)
        shutil.move(os.path.join(tmp, "__0_0.distcp"), os.path.join(OUT, "torch/dcp.distcp"))
    # In the order in which the planner put them; the number of each is its name.
    truth["torch/dcp.distcp"] = {"1": describe(ramp(3, 4)), "2": describe(ramp(3, dtype=torch.bfloat16)), "3": describe(torch.ones(2, 2))}

    script = os.path.join(OUT, "torch/script.pt")
    module = nn.Linear(2, 2)
    if not os.path.exists(script):
        torch.jit.save(torch.jit.script(module), script)
    loaded = torch.jit.load(script).state_dict()
    truth["torch/script.pt"] = {n: describe(t) for n, t in loaded.items()}

    class Exported(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2)
            self.register_buffer("mean", ramp(3))
            self.lifted = ramp(2)

        def forward(self, x):
            return self.fc(x - self.mean) + self.lifted

    path = os.path.join(OUT, "torch/exported.pt2")
    if not os.path.exists(path):
        torch.export.save(torch.export.export(Exported(), (ramp(1, 3),)), path)
    program = torch.export.load(path)
    truth["torch/exported.pt2"] = {n: describe(t) for n, t in {**program.state_dict, **program.constants}.items()}


def safetensors_files():
    def st(name, tensors, **kwargs):
        safetensors.torch.save_file(tensors, os.path.join(OUT, "safetensors", name), **kwargs)
        os.chmod(os.path.join(OUT, "safetensors", name), 0o644)
        truth["safetensors/" + name] = {n: describe(t) for n, t in tensors.items()}

    torch.manual_seed(1)
    st("flat.safetensors", nn.Linear(4, 3).state_dict(), metadata={"format": "pt"})
    st("empty.safetensors", {})
    st("dtypes.safetensors", {str(d): of_type(d) for d in CODES if d in safetensors.torch._TYPES.values()})
    st("scalars_empty.safetensors", {"scalar": torch.tensor(2.5), "empty": torch.empty(0), "e2": torch.empty(2, 0, 3),
                                     "": torch.ones(1), "größe \"x\"\n": torch.ones(2), "odd": torch.ones(3, dtype=torch.bool)})
    arrays = {"b": np.arange(6, dtype=np.float64).reshape(2, 3), "a": np.arange(3, dtype=np.uint16)}
    safetensors.numpy.save_file(arrays, os.path.join(OUT, "safetensors/numpy.safetensors"))
    os.chmod(os.path.join(OUT, "safetensors/numpy.safetensors"), 0o644)
    truth["safetensors/numpy.safetensors"] = {n: describe(torch.from_numpy(a)) for n, a in arrays.items()}


class Point:
    def __init__(self):
        self.x, self.y = 1, -2


def pickle_files():
    Point.__module__ = "shapes"  # resolved by no one
    sys.modules["shapes"] = sys.modules["__main__"]
    twice = ["shared"]
    obj = {
        "none": None, "bools": [True, False], "ints": [0, 255, 256, 65535, 65536, -1, 2**31, -(2**63), 2**63, 10**30],
        "floats": [0.0, -1.5, float("inf")], "text": "plain", "unicode": "é\n", "bytes": b"\x00\xff", "tuple": (1, (2, (3, ()))),
        "set": {1}, "frozen": frozenset([2]), "twice": [twice, twice], "ordered": collections.OrderedDict(a=1),
        "deque": collections.deque([1, 2]), "object": Point(), "class": collections.OrderedDict, "array": bytearray(b"abc"),
    }
    for protocol in range(6):
        write("pickle/protocol%d.pkl" % protocol, pickle.dumps(obj, protocol))
    loop = []
    loop.append(loop)
    write("pickle/cycle.pkl", pickle.dumps(loop, 2))
    array = np.arange(4, dtype=np.float32)
    write("pickle/numpy.pkl", pickle.dumps({"a": array}, 4))
    write("pickle/numpy_out_of_band.pkl", pickle.dumps({"a": array}, 5, buffer_callback=lambda b: None))


def write(name, data):
    with open(os.path.join(OUT, name), "wb") as f:
        f.write(data)


if __name__ == "__main__":
    for folder in ("torch", "safetensors", "pickle"):
        os.makedirs(os.path.join(OUT, folder), exist_ok=True)
    torch_files()
    safetensors_files()
    pickle_files()
    with open(os.path.join(OUT, "truth.json"), "w", encoding="utf-8") as f:
        json.dump(truth, f, indent=1, sort_keys=True, ensure_ascii=False)
        f.write("\n")
