"""Writes the goldens of this folder: python3 make.py FOLDER PLAIN FUSED [WEIGHTS]

PLAIN and FUSED are two builds of ggml's base library (ggml.c, ggml-quants.c, ...) as shared objects:
gcc -O2 -mno-fma, and -O3 -march=native with FMA. WEIGHTS is a .safetensors file to take numbers from;
without it they are random ones, and FOLDER is small.
"""

import ctypes
import sys

import numpy as np
import torch

TYPES = {"Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13,
         "Q6_K": 14, "IQ4_NL": 20, "IQ4_XS": 23, "MXFP4": 39}
BYTES = {"Q4_0": 144, "Q4_1": 160, "Q5_0": 176, "Q5_1": 192, "Q8_0": 272, "Q2_K": 84, "Q3_K": 110, "Q4_K": 144,
         "Q5_K": 176, "Q6_K": 210, "IQ4_NL": 144, "IQ4_XS": 136, "MXFP4": 136}  # of 256 elements
# Those of FP8 that go into the repository.
SMALL = {("F8_E4M3", "row", v) for v in range(5)} | {
    ("F8_E4M3", "tensor", 0), ("F8_E4M3", "tensor", 1), ("F8_E4M3", "block", 0), ("F8_E4M3", "block", 2),
    ("F8_E5M2", "tensor", 0), ("F8_E5M2", "row", 1), ("F8_E5M2", "block", 4)}
floats = ctypes.POINTER(ctypes.c_float)


def library(path):
    lib = ctypes.CDLL(path)
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, floats, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
                                        ctypes.c_int64, floats]
    return lib


def quantize(lib, name, x, row, imat):
    out = np.zeros(x.size // 256 * BYTES[name], np.uint8)
    weights = imat.ctypes.data_as(floats) if imat is not None else None
    n = lib.ggml_quantize_chunk(TYPES[name], x.ctypes.data_as(floats), out.ctypes.data, 0, x.size // row, row,
                                weights)
    assert n == out.size, (name, n, out.size)
    return out


def random_weights():
    """16 blocks: a layer's numbers, then outliers, a part of zeros, tiny parts, and a block of zeros."""
    rng = np.random.default_rng(1)
    x = (rng.normal(0, 0.02, (16, 256)) * np.exp(rng.normal(0, 0.3, (16, 1)))).astype(np.float32)
    x[11, ::37] *= 9
    x[12] = rng.standard_t(3, 256) * 0.01
    x[13, 64:96] = 0
    x[14, 128:160] *= 1e-4
    x[14, 0:16] = x[14, 0]
    x[15] = 0
    return x.reshape(-1)


def main(folder, plain, fused, weights=None):
    if weights:
        from safetensors.torch import load_file
        mats = [v for v in load_file(weights).values() if v.ndim == 2 and v.numel() % 256 == 0 and v.numel() > 100000]
        x = torch.cat([m.flatten()[:98304] for m in mats]).float().numpy()
    else:
        x = random_weights()
    bf16 = torch.from_numpy(x).to(torch.bfloat16)
    bf16.view(torch.int16).numpy().tofile(f"{folder}/weights.bf16")
    x = bf16.float().numpy().copy()
    row = 1536 if weights else 4096
    imat = np.exp(np.random.default_rng(2).normal(0, 0.7, row)).astype(np.float32)
    builds = {"O2": library(plain), "fma": library(fused)}
    for name in TYPES:
        for how, m in (("plain", None), ("imat", imat)):
            if m is not None and name in ("Q8_0", "MXFP4"):
                continue
            out = {build: quantize(lib, name, x, row, m) for build, lib in builds.items()}
            out["O2"].tofile(f"{folder}/{name}.{how}.O2")
            if not np.array_equal(out["O2"], out["fma"]):
                out["fma"].tofile(f"{folder}/{name}.{how}.fma")
    fp8(folder, bf16.reshape(16, 256) if not weights else bf16[:128 * 1536].reshape(128, 1536), bool(weights))


def fp8(folder, w, large):
    """Of each: codes, then the scales in single precision."""
    rows, cols = w.shape
    tall, wide = (128, 128) if large else (8, 64)
    for dtype, name, top in ((torch.float8_e4m3fn, "F8_E4M3", 448.0), (torch.float8_e5m2, "F8_E5M2", 57344.0)):
        f = w.float()
        blocks = f.abs().reshape(rows // tall, tall, cols // wide, wide).amax((1, 3))
        for group, amax in (("tensor", f.abs().amax().reshape(1, 1)), ("row", f.abs().amax(1, keepdim=True)),
                            ("block", blocks)):
            for variant in range(5):
                if not large and (name, group, variant) not in SMALL:
                    continue
                s = (amax.clamp(min=1e-6) / top).float()
                if variant in (1, 3):  # compressed-tensors: scales of the weights' type, and its arithmetic
                    s = s.to(torch.bfloat16).float()
                if variant == 4:
                    s = s.to(torch.float16).float().clamp(min=6e-8)
                e = s.repeat_interleave(rows // s.shape[0], 0).repeat_interleave(cols // s.shape[1], 1)
                b = torch.bfloat16
                v = {0: lambda: f / e, 1: lambda: w / e.to(b), 2: lambda: f * (1 / e),
                     3: lambda: w * (1 / e.to(b)), 4: lambda: w.half() / e.half()}[variant]()
                codes = v.float().clamp(-top, top).to(dtype).view(torch.uint8)
                with open(f"{folder}/{name}.{group}.{variant}", "wb") as out:
                    out.write(codes.contiguous().numpy().tobytes() + s.numpy().tobytes())


main(*sys.argv[1:])
