"""Writes the goldens of apart/: python3 apart.py FOLDER, which has weights.bf16. Versions: apart/VERSIONS.

Of each: codes as they lie in a checkpoint (NAME.codes), and the scales (NAME.scales). The numbers are 16 rows of 256;
of those called fp16 and fp32 they were made that first.
"""

import sys

import bitsandbytes
import bitsandbytes.functional as bnb
import compressed_tensors
import numpy as np
import torch
from compressed_tensors.compressors import mxfp4, naive_quantized, nvfp4, pack_quantized
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def compress(kind, w, scale_dtype=None, **args):
    """What llm-compressor saves where scales come of the least and greatest number of each group."""
    args = QuantizationArgs(symmetric=True, scale_dtype=scale_dtype, **args)
    groups = w.unflatten(-1, (-1, args.group_size)) if args.group_size else w.unsqueeze(1)
    g = generate_gparam(w.amin().float(), w.amax().float()) if scale_dtype == torch.float8_e4m3fn else None
    scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), args, global_scale=g)
    state = {"weight": w, "weight_scale": scale}
    if g is not None:
        state["weight_global_scale"] = g
    return kind.compress(state, QuantizationScheme(targets=["Linear"], weights=args))


def raw(t):
    return t.contiguous().view(torch.uint8).numpy().tobytes()


def main(folder):
    w = torch.from_numpy(np.fromfile(f"{folder}/weights.bf16", np.int16)).view(torch.bfloat16).reshape(16, 256)

    def save(name, codes, scales, extra=None):
        for what, t in ("codes", codes), ("scales", scales), ("global", extra):
            if t is not None:
                with open(f"{folder}/apart/{name}.{what}", "wb") as f:
                    f.write(raw(t))

    for kind in "nf4", "fp4":
        codes, state = bnb.quantize_4bit(w, blocksize=64, quant_type=kind)
        save(kind, codes, state.absmax)
    codes, scales, _ = bnb.int8_vectorwise_quant(w.half())
    save("int8", codes, scales)
    pack = pack_quantized.PackedQuantizationCompressor
    for dtype in TYPES:
        x = w.to(TYPES[dtype])
        for name, kind, what, args in (
                ("packed4", pack, "weight_packed", {"num_bits": 4, "strategy": "group", "group_size": 128}),
                ("packed8", pack, "weight_packed", {"num_bits": 8, "strategy": "channel"}),
                ("naive8", naive_quantized.NaiveQuantizationCompressor, "weight",
                 {"num_bits": 8, "strategy": "channel"}),
                ("nvfp4", nvfp4.NVFP4PackedCompressor, "weight_packed",
                 {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16,
                  "scale_dtype": torch.float8_e4m3fn}),
                ("mxfp4", mxfp4.MXFP4PackedCompressor, "weight_packed",
                 {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32,
                  "scale_dtype": torch.uint8})):
            out = compress(kind, x, **args)
            save(f"{name}-{dtype}", out[what], out["weight_scale"], out.get("weight_global_scale"))
    with open(f"{folder}/apart/VERSIONS", "w") as f:
        f.write(f"bitsandbytes {bitsandbytes.__version__}, compressed-tensors {compressed_tensors.__version__}, "
                f"torch {torch.__version__}\n")


main(*sys.argv[1:])
