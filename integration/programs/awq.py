"""awq.py DIR: a layer of a Llama in bfloat16, and quantised to four bits by AWQ (Lin et al. 2023), by 128 inputs, with zeros, as
AutoAWQ 0.2.9 does on a CPU: what it multiplies, clips, rounds and packs, and in which type, is its code's (quantize/quantizer.py,
scale.py, modules/linear/gemm.py). Which factors and bounds it chooses is told by errors of the layers' own outputs. Prints a line
of JSON a file: path and kind, and of, what it was made of."""
import json
import os
import sys

import torch
from safetensors.torch import save_file

out = sys.argv[1]
torch.manual_seed(3)
torch.set_num_threads(1)
HIDDEN, FFN, GROUP, TOKENS = 768, 2048, 128, 256


def weights(rows, cols):
    """With rows and columns of other sizes, as trained layers have them."""
    return 0.02 * torch.exp(0.3 * torch.randn(rows, 1)) * torch.exp(0.2 * torch.randn(cols)) * torch.randn(rows, cols)


def features(n):
    """Inputs of a layer: correlated, some much larger than others."""
    x = torch.randn(TOKENS, n) @ (0.05 * torch.randn(n, n) + torch.eye(n))
    return (x * torch.exp(0.8 * torch.randn(n))).half()


def pseudo_quantize(w):
    """Numbers that codes stand for, scales and zeros."""
    shape, w = w.shape, w.reshape(-1, GROUP)
    most, least = w.amax(1, keepdim=True), w.amin(1, keepdim=True)
    scales = (most - least).clamp(min=1e-5) / 15
    zeros = (-torch.round(least / scales)).clamp_(0, 15)
    w = (torch.clamp(torch.round(w / scales) + zeros, 0, 15) - zeros) * scales
    return w.reshape(shape), scales.view(shape[0], -1), zeros.view(shape[0], -1)


def error(x, was, now):
    return ((x.float() @ (now - was).float().T) ** 2).mean().item()


def best_scales(x, layers):
    """The factors of inputs, of binary16."""
    w = torch.cat(layers).float().view(-1, GROUP)
    w = (w.abs() / (w.abs().amax(1, keepdim=True) + 1e-6)).view(-1, x.shape[1])
    w_mean, x_mean = w.mean(0).half(), x.abs().float().mean(0).half()
    best = None
    for ratio in range(20):
        scales = (x_mean.pow(ratio / 20) / (w_mean.pow(1 - ratio / 20) + 1e-4)).clamp(min=1e-4)
        scales = scales / (scales.max() * scales.min()).sqrt()
        loss = sum(error(x, w, pseudo_quantize(w * scales)[0] / scales) for w in layers)
        if best is None or loss < best[0]:
            best = loss, scales
    return best[1]


def clipped(w, x):
    """Weights whose greatest ones are less, where that makes less of an error."""
    groups = w.view(len(w), 1, -1, GROUP)
    x = x[::4].view(1, -1, groups.shape[2], GROUP)
    most = groups.abs().amax(-1, keepdim=True)
    best, least = most.clone(), torch.full_like(most, 6e4)
    for i in range(10):
        bound = most * (1 - i / 20)
        now = pseudo_quantize(torch.clamp(groups, -bound, bound))[0]
        lost = torch.einsum("tgk,ogk->tog", x[0].float(), (now - groups)[:, 0].float()).pow(2).mean(0)[:, None, :, None].half()
        better = lost < least
        least[better], best[better] = lost[better], bound[better]
    return torch.clamp(groups, -best, best).view(w.shape)


def pack(codes):
    """Rows of codes, eight to a word, in AutoAWQ's order."""
    words = sum(codes[:, k::8].long() << 4 * i for i, k in enumerate([0, 2, 4, 6, 1, 3, 5, 7]))
    return (words - (words >> 31 << 32)).to(torch.int32).contiguous()


def quantised(w):
    """The tensors of a layer."""
    w, scales, zeros = pseudo_quantize(w)
    scales, zeros = scales.t().contiguous(), zeros.t().contiguous()
    each = scales.repeat_interleave(GROUP, 0)
    codes = torch.round((w.t() + (zeros * scales).repeat_interleave(GROUP, 0)) / each).to(torch.int)
    return {"qweight": pack(codes), "qzeros": pack(zeros.to(torch.int)), "scales": scales}


def save(name, tensors, kind, of=""):
    os.makedirs(os.path.dirname(os.path.join(out, name)), exist_ok=True)
    save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(out, name))
    print(json.dumps({"path": name, "kind": kind, "of": of}), flush=True)


layer = "model.layers.0."
shapes = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (HIDDEN, HIDDEN), "self_attn.v_proj": (HIDDEN, HIDDEN),
          "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (FFN, HIDDEN), "mlp.up_proj": (FFN, HIDDEN),
          "mlp.down_proj": (HIDDEN, FFN)}
base = {name: weights(*shape).bfloat16() for name, shape in shapes.items()}
norms = {name: (1 + 0.1 * torch.randn(HIDDEN)).bfloat16() for name in ("input_layernorm", "post_attention_layernorm")}
save("base/model.safetensors", {f"{layer}{k}.weight": v for k, v in (base | norms).items()}, "HF")

now, norms = {k: v.half() for k, v in base.items()}, {k: v.half() for k, v in norms.items()}
x = {"q": features(HIDDEN), "o": features(HIDDEN), "gate": features(HIDDEN), "down": features(FFN)}
for inputs, before, names in (("q", "input_layernorm", ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
                              ("o", "self_attn.v_proj", ["self_attn.o_proj"]),
                              ("gate", "post_attention_layernorm", ["mlp.gate_proj", "mlp.up_proj"]),
                              ("down", "mlp.up_proj", ["mlp.down_proj"])):
    scales = best_scales(x[inputs], [now[k] for k in names])
    if before in norms:
        norms[before] /= scales
    else:
        now[before] /= scales.view(-1, 1)
    for name in names:
        now[name] *= scales.view(1, -1)
    x[inputs] /= scales
    for name in names:
        x[name] = x[inputs]
for name in now:
    if "q_" not in name and "k_" not in name:
        now[name] = clipped(now[name], x[name])
made = {f"{layer}{name}.{k}": v for name, w in now.items() for k, v in quantised(w).items()}
save("awq/model.safetensors", made | {f"{layer}{k}.weight": v for k, v in norms.items()}, "AWQ", "base/model.safetensors")
