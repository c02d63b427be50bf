"""Writes numbers.sha256: python3 make_numbers.py FOLDER PLAIN

What ggml's to_float (PLAIN is a build of ggml's base library) and torch make of the blocks in FOLDER: for each file the
digest of single-precision numbers, little-endian. Of ggml's, what the package gguf makes of them is compared.
"""

import ctypes
import glob
import hashlib
import os
import sys

import gguf
import numpy as np
import torch


class Traits(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("elements", ctypes.c_int64), ("interleave", ctypes.c_int64),
                ("size", ctypes.c_size_t), ("quantised", ctypes.c_bool),
                ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64))]


def main(folder, plain):
    lib = ctypes.CDLL(plain)
    lib.ggml_get_type_traits.restype = ctypes.POINTER(Traits)
    lines = []
    for path in sorted(glob.glob(os.path.join(folder, "*.*.*"))):
        name = os.path.basename(path)
        kind, group, _ = name.split(".")
        raw = np.fromfile(path, np.uint8)
        if kind.startswith("F8"):
            dtype = {"F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}[kind]
            codes = torch.from_numpy(raw[:4096].copy()).view(dtype).reshape(16, 256).float()
            s = torch.from_numpy(raw[4096:].copy()).view(torch.float32)
            s = s.reshape({"tensor": (1, 1), "row": (16, 1), "block": (2, 4)}[group])
            s = s.repeat_interleave(16 // s.shape[0], 0).repeat_interleave(256 // s.shape[1], 1)
            x = (codes * s).numpy()
        else:
            number = gguf.GGMLQuantizationType[kind]
            elements, size = gguf.GGML_QUANT_SIZES[number]
            x = np.empty(raw.size // size * elements, np.float32)
            lib.ggml_get_type_traits(ctypes.c_int(number)).contents.to_float(raw.ctypes.data, x.ctypes.data, x.size)
            assert gguf.quants.dequantize(raw, number).tobytes() == x.tobytes(), name
        lines.append(f"{hashlib.sha256(x.tobytes()).hexdigest()}  {name}\n")
    with open(os.path.join(folder, "numbers.sha256"), "w") as f:
        f.writelines(lines)


main(*sys.argv[1:])
