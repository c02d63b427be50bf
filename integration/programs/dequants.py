"""dequants.py MODEL DIR: writes what others make of the quantised files of a model, and of its half precision.

MODEL is a folder that quants.py wrote of the Llama. Below DIR come safetensors as transformers saves what it dequantised from
GGUF (in bfloat16, and of some in binary16 or single precision) and as DeepSeek's and compressed-tensors' scripts dequantise FP8;
GGUF in half and single precision as llama-quantize makes it of quantised ones (ggml's own code); and the base in other types of
float. Prints a line of JSON a file:

    path         below DIR
    of           below MODEL: what it was computed from
    kind         the type of what it was computed from, and its own: Q8_0 BF16
"""
import argparse
import ctypes
import glob
import json
import os

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file

import ggml

HEADS = {"attn_q": 8, "attn_k": 4}  # of the Llama of quants.py
HALVES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


class Traits(ctypes.Structure):
    """The beginning of ggml_type_traits."""

    _fields_ = [("name", ctypes.c_char_p), ("elements", ctypes.c_int64), ("interleave", ctypes.c_int64),
                ("size", ctypes.c_size_t), ("quantised", ctypes.c_bool),
                ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64))]


def by_ggml(blocks, kind, shape):
    """What ggml makes of blocks: float32 of that shape."""
    lib = ctypes.CDLL(ggml.library())
    lib.ggml_get_type_traits.restype = ctypes.POINTER(Traits)
    blocks = np.ascontiguousarray(blocks)
    out = np.empty(shape, np.float32)
    lib.ggml_get_type_traits(ctypes.c_int(kind)).contents.to_float(blocks.ctypes.data, out.ctypes.data, out.size)
    return torch.from_numpy(out)


def by_python(blocks, kind, shape):
    """What the package gguf makes of them, which transformers calls."""
    return torch.from_numpy(np.ascontiguousarray(gguf.quants.dequantize(blocks, kind)).reshape(shape))


class Quantised:
    """A GGUF file: its tensors in single precision."""

    def __init__(self, path, how):
        self.tensors, self.kinds = {}, {}
        for t in gguf.GGUFReader(path).tensors:
            shape = tuple(int(n) for n in t.shape[::-1])
            self.kinds[t.name] = t.tensor_type
            self.tensors[t.name] = (torch.from_numpy(np.array(t.data).reshape(shape)) if t.tensor_type == 0
                                    else how(np.array(t.data), t.tensor_type, shape))

    def as_saved(self, names):
        """{name in the base: tensor}, with the rows of Q and K where transformers has them."""
        out = {}
        for name, t in self.tensors.items():
            heads = HEADS.get(name.split(".")[-2])
            if heads:
                t = t.reshape(heads, t.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(t.shape)
            out[names[name]] = t
        return out


class Folder:
    def __init__(self, model, root):
        self.model, self.root = model, root
        self.base = os.path.join("tiny-llama", "model.safetensors")
        self.tensors = load_file(os.path.join(model, self.base))
        layers = 1 + max(int(n.split(".")[2]) for n in self.tensors if ".layers." in n)
        names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
        self.names = {names.get_name(n, try_suffixes=(".weight",)): n for n in self.tensors}

    def path(self, *names):
        p = os.path.join(self.root, *names)
        os.makedirs(os.path.dirname(p), exist_ok=True)
        return p

    def say(self, path, of, kind):
        print(json.dumps({"path": os.path.relpath(path, self.root), "of": of, "kind": kind}), flush=True)

    def save(self, folder, tensors, of, kind):
        path = self.path(folder, "model.safetensors")
        save_file({n: t.contiguous() for n, t in tensors.items()}, path, metadata={"format": "pt"})
        self.say(path, of, kind)

    def from_gguf(self, label, to="BF16"):
        of = os.path.join("tiny-llama-GGUF", f"tiny-llama-{label}.gguf")
        q = Quantised(os.path.join(self.model, of), by_python)
        tensors = {n: t.to(HALVES[to]) for n, t in q.as_saved(self.names).items()}
        self.save(f"tiny-llama-{label}-{to}", tensors, of, f"{label} {to}")

    def to_gguf(self, label, to):
        """As llama-quantize --allow-requantize makes it."""
        of = os.path.join("tiny-llama-GGUF", f"tiny-llama-{label}.gguf")
        q = Quantised(os.path.join(self.model, of), by_ggml)
        path = self.path("tiny-llama-GGUF", f"tiny-llama-{label}-to-{to}.gguf")
        w = gguf.GGUFWriter(path, "llama")
        w.add_type("model")
        w.add_name(f"tiny-llama {to}")
        for name, t in q.tensors.items():
            if q.kinds[name] == 0 or to == "F32":
                w.add_tensor(name, t.numpy())
            else:
                data = t.to(HALVES[to]).view(torch.uint8).numpy()
                w.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[to])
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        self.say(path, of, f"{label} {to}")

    def from_fp8(self, label, dequantise, scale, to="BF16"):
        of = os.path.join(f"tiny-llama-{label}", "model.safetensors")
        q = load_file(os.path.join(self.model, of))
        out = {}
        for name, w in q.items():
            if w.dtype == torch.float8_e4m3fn:
                out[name] = dequantise(w, q[name.removesuffix("weight") + scale]).to(HALVES[to])
            elif not name.endswith(scale):
                out[name] = w.to(HALVES[to])
        self.save(f"tiny-llama-{label}-{to}", out, of, f"{label} {to}")


def of_blocks(w, s):
    """DeepSeek's weight_dequant: single precision, then bfloat16."""
    s = s.repeat_interleave(128, 0)[: w.shape[0]].repeat_interleave(128, 1)[:, : w.shape[1]]
    return (w.float() * s).to(torch.bfloat16)


def of_scales(w, s):
    """compressed-tensors' dequantize: in the type of the scales."""
    return w.to(s.dtype) * s


parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("dir")
args = parser.parse_args()

torch.set_num_threads(1)  # others may want the processors
folder = Folder(args.model, args.dir)
for label in sorted(glob.glob(os.path.join(args.model, "tiny-llama-GGUF", "*.gguf"))):
    label = os.path.basename(label).removeprefix("tiny-llama-").removesuffix(".gguf")
    if "BF16" not in label and "imatrix" not in label and "fused" not in label:
        folder.from_gguf(label)
for label, to in (("Q8_0", "F16"), ("Q4_K_M", "F16"), ("Q6_K", "F32")):
    folder.from_gguf(label, to)
for label, to in (("Q8_0", "BF16"), ("Q4_K_M", "F16"), ("MXFP4-pure", "F32")):
    folder.to_gguf(label, to)
folder.from_fp8("FP8-block", of_blocks, "weight_scale_inv")
folder.from_fp8("FP8-block", of_blocks, "weight_scale_inv", "F16")
folder.from_fp8("FP8-dynamic", of_scales, "weight_scale")
folder.from_fp8("FP8-tensor", of_scales, "weight_scale")
folder.from_fp8("FP8", of_scales, "weight_scale")
for to in ("F32", "F16"):
    folder.save(f"tiny-llama-{to}", {n: t.to(HALVES[to]) for n, t in folder.tensors.items()}, folder.base, f"HF {to}")
