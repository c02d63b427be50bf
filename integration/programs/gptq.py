"""gptq.py DIR: two matrices in bfloat16, and quantised to four bits by GPTQ (Frantar et al. 2022, algorithm 1), by 128 inputs,
symmetric: packed by compressed-tensors, and as AutoGPTQ has it. Prints a line of JSON a file: path and kind, and of, what it was
made of."""
import json
import os
import sys

import torch
from compressed_tensors.compressors import pack_quantized
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file

out = sys.argv[1]
torch.manual_seed(3)
torch.set_num_threads(1)
ROWS, COLS, GROUP = 1024, 1024, 128


def inputs():
    """Those of a layer: correlated, some much larger than others."""
    x = torch.randn(2048, COLS) @ (0.05 * torch.randn(COLS, COLS) + torch.eye(COLS))
    return x * torch.exp(0.8 * torch.randn(COLS))


def gptq(weight, x):
    """The numbers that stand for weight, and their scales."""
    w, hessian = weight.float().clone(), 2 * x.T @ x / len(x)
    hessian += 0.01 * hessian.diag().mean() * torch.eye(COLS)
    inverse = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(hessian)), upper=True)
    scales = []
    for begin in range(0, COLS, GROUP):
        end = begin + GROUP
        scale = (w[:, begin:end].abs().amax(1) / 7.5).bfloat16()
        scales.append(scale)
        errors = torch.zeros(ROWS, GROUP)
        for i in range(begin, end):
            q = (w[:, i] / scale.float()).round().clamp(-8, 7) * scale.float()
            error = (w[:, i] - q) / inverse[i, i]
            w[:, i + 1 : end] -= error[:, None] * inverse[i, i + 1 : end]
            w[:, i] = q
            errors[:, i - begin] = error
        w[:, end:] -= errors @ inverse[begin:end, end:]
    return w, torch.stack(scales, 1)


def save(name, tensors, kind, of=""):
    os.makedirs(os.path.dirname(os.path.join(out, name)), exist_ok=True)
    save_file(tensors | {"model.norm.weight": norm, "model.embed_tokens.weight": embeddings}, os.path.join(out, name))
    print(json.dumps({"path": name, "kind": kind, "of": of}), flush=True)


norm, embeddings = (1 + 0.1 * torch.randn(COLS)).bfloat16(), (0.02 * torch.randn(64, COLS)).bfloat16()
base, packed, auto = {}, {}, {}
scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(num_bits=4, strategy="group", group_size=GROUP,
                                                                         symmetric=True))
for layer in range(2):
    name = f"model.layers.{layer}.mlp.up_proj."
    base[name + "weight"] = (0.02 * torch.exp(0.3 * torch.randn(ROWS, 1)) * torch.randn(ROWS, COLS)).bfloat16()
    numbers, scale = gptq(base[name + "weight"], inputs())
    made = pack_quantized.PackedQuantizationCompressor.compress({"weight": numbers, "weight_scale": scale}, scheme)
    packed |= {name + k: v.contiguous() for k, v in made.items()}
    codes = (numbers.unflatten(1, (-1, GROUP)) / scale.float()[..., None]).round().flatten(1).long() + 8
    words = sum(codes.T.reshape(COLS // 8, 8, ROWS)[:, k] << 4 * k for k in range(8))
    auto |= {name + "qweight": (words - (words >> 31 << 32)).to(torch.int32).contiguous(), name + "scales": scale.T.half().contiguous(),
             name + "qzeros": torch.full((COLS // GROUP, ROWS // 8), 0x77777777, dtype=torch.int32),
             name + "g_idx": (torch.arange(COLS) // GROUP).to(torch.int32)}
save("base/model.safetensors", base, "HF")
save("gptq/model.safetensors", packed, "W4A16, GPTQ", "base/model.safetensors")
save("auto/model.safetensors", auto, "GPTQ", "base/model.safetensors")
