"""A model as the libraries save it that quantise for transformers and vLLM: kinds of quants.py.

    NF4, NF4-nested, FP4, INT8   transformers with bitsandbytes; nested: its scales are quantised, too
    W4A16, W8A16, W8A8           compressed-tensors, as llm-compressor saves what it rounds to the nearest: four bits by
                                 128 elements, packed; eight bits by row, packed; eight bits by row
    NVFP4, MXFP4-packed          compressed-tensors, numbers of four bits
"""

import contextlib
import os
import sys

import torch

BITSANDBYTES = {
    "NF4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    "NF4-nested": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
    "FP4": {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"},
    "INT8": {"load_in_8bit": True},
}
COMPRESSED = {
    "W4A16": {"num_bits": 4, "strategy": "group", "group_size": 128},
    "W8A16": {"num_bits": 8, "strategy": "channel"},
    "W8A8": {"num_bits": 8, "strategy": "channel"},
    "NVFP4": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16,
              "scale_dtype": torch.float8_e4m3fn},
    "MXFP4-packed": {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "scale_dtype": torch.uint8},
}


def bitsandbytes(folder, source):
    """What transformers makes of the folder source."""
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, BitsAndBytesConfig

    causal = "CausalLM" in AutoConfig.from_pretrained(source).architectures[0]
    for kind, how in BITSANDBYTES.items():
        if not folder.wants(kind):
            continue
        path = folder.path(f"{folder.model.name}-{kind}", "model.safetensors")
        with contextlib.redirect_stdout(sys.stderr):  # deepspeed says that there is no GPU
            model = (AutoModelForCausalLM if causal else AutoModel).from_pretrained(
                source, dtype="auto", device_map="cpu", quantization_config=BitsAndBytesConfig(**how))
            model.save_pretrained(os.path.dirname(path))
        folder.say(path, kind)


def compressed(folder):
    """What compressed-tensors makes of the matrices of all layers."""
    from compressed_tensors.compressors import mxfp4, naive_quantized, nvfp4, pack_quantized
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    pack = pack_quantized.PackedQuantizationCompressor
    compressors = {"W4A16": pack, "W8A16": pack, "W8A8": naive_quantized.NaiveQuantizationCompressor,
                   "NVFP4": nvfp4.NVFP4PackedCompressor, "MXFP4-packed": mxfp4.MXFP4PackedCompressor}

    def layer(w, kind, args):
        groups = w.unflatten(-1, (-1, args.group_size)) if args.group_size else w.unsqueeze(1)
        g = generate_gparam(w.amin().float(), w.amax().float()) if kind == "NVFP4" else None
        scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), args, global_scale=g)
        state = {"weight": w, "weight_scale": scale} | ({} if g is None else {"weight_global_scale": g})
        return compressors[kind].compress(state, QuantizationScheme(targets=["Linear"], weights=args))

    for kind, args in COMPRESSED.items():
        if not folder.wants(kind):
            continue
        out = {}
        for name, w in folder.model.tensors.items():
            if w.ndim == 2 and ".layer" in name:
                made = layer(w, kind, QuantizationArgs(symmetric=True, **args))
                out |= {name.removesuffix("weight") + k: v.contiguous() for k, v in made.items()}
            else:
                out[name] = w
        folder.safetensors(f"-{kind}", kind, out, False, quantization_config={"quant_method": "compressed-tensors"})
