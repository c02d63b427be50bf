"""ggml's quantisers, as scripts/setup-ggml builds them: what llama-quantize calls. A module."""
import ctypes
import glob
import os

import gguf
import numpy as np

libraries = {}


def library(fused=False):
    """The path of the library: with fused multiplications and additions, or without; None where there is none."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    found = glob.glob(os.path.join(cache, "ckptfs/tools/ggml-*", "libggml-fma.so" if fused else "libggml.so"))
    return max(found, default=None)


def quantise(values, kind, importance=None, fused=False):
    """The rows of a matrix of float32, as bytes: uint8 of [rows, bytes of a row]. importance: float32, one a column."""
    if fused not in libraries:
        libraries[fused] = ctypes.CDLL(library(fused))
        libraries[fused].ggml_quantize_chunk.restype = ctypes.c_size_t
    kind = gguf.GGMLQuantizationType[kind]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    rows, columns = values.shape
    values = np.ascontiguousarray(values, np.float32)
    out = np.empty((rows, columns // elements * size), np.uint8)
    if importance is not None:
        importance = np.ascontiguousarray(importance, np.float32)
        assert importance.shape == (columns,)
    wrote = libraries[fused].ggml_quantize_chunk(
        ctypes.c_int(kind), ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(out.ctypes.data), ctypes.c_int64(0),
        ctypes.c_int64(rows), ctypes.c_int64(columns),
        None if importance is None else ctypes.c_void_p(importance.ctypes.data))
    assert wrote == out.size, (kind, wrote, out.size)
    return out


def block(kind):
    """How many elements a block of the format has."""
    return gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][0]


FALLBACK = {"Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "IQ4_XS": "IQ4_NL"}
MIXED = {"Q4_K_M": "Q4_K", "Q5_K_M": "Q5_K"}


def types(names, mix, columns, tied):
    """The type of each matrix of a model, by llama-quantize's rules (llama_tensor_get_type) for Llama and BERT: more bits for
    some layers' attn_v and ffn_down in the *_M mixes, Q6_K for the output; another type where rows have no whole blocks.

    names: as GGUF has them; mix: such as Q4_K_M; columns: {name: length of a row}; tied: there is no output.weight."""
    layers = 1 + max(int(n.split(".")[1]) for n in names if n.startswith("blk."))

    def more_bits(i):
        return i < layers // 8 or i >= 7 * layers // 8 or (i - layers // 8) % 3 == 2

    out = {}
    for n in names:
        kind = MIXED.get(mix, mix)
        if n == "output.weight" or tied and n == "token_embd.weight":
            if columns[n] % block(kind):
                kind = "Q8_0"
            elif kind != "Q8_0":
                kind = "Q6_K"
        elif mix in MIXED and ("attn_v." in n or "ffn_down." in n) and more_bits(int(n.split(".")[1])):
            kind = "Q6_K"
        out[n] = FALLBACK[kind] if columns[n] % block(kind) else kind
    return out
