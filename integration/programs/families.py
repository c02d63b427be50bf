"""families.py DIR WIDTH: writes folders of models that are relatives, as people keep them, and says how many bytes they are.

A base in the layout of the Hugging Face cache (shards, symbolic links to blobs), fine-tunes of it, one of them with
frozen embeddings, a merged adapter, the same model in single precision with its roundings, GGUF (Q8_0), copies by hard
link and under another name, a .bin, and a run of AdamW whose files have the optimizer's state.
"""

import hashlib
import json
import os
import shutil
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

root, width = sys.argv[1], int(sys.argv[2])
layers, vocab, deep = 4, 8 * width, 4 * width
torch.manual_seed(1)


def shapes():
    yield "model.embed_tokens.weight", (vocab, width)
    for i in range(layers):
        for name in ("q", "k", "v", "o"):
            yield f"model.layers.{i}.self_attn.{name}_proj.weight", (width, width)
        yield f"model.layers.{i}.mlp.up_proj.weight", (deep, width)
        yield f"model.layers.{i}.mlp.down_proj.weight", (width, deep)
        yield f"model.layers.{i}.input_layernorm.weight", (width,)


def weights():
    """Each matrix has a scale of its own, and its rows have theirs, as in trained models."""
    model = {}
    for name, shape in shapes():
        if len(shape) == 1:
            model[name] = 1 + 0.1 * torch.randn(shape)
        else:
            rows = torch.exp(0.4 * torch.randn(shape[0], 1))
            model[name] = 0.02 * rows * torch.randn(shape)
    return model


def trained(model, change, frozen=()):
    return {k: w if k in frozen else w * (1 + change * torch.randn(w.shape)) for k, w in model.items()}


def merged(model, rank=8):
    out = {}
    for k, w in model.items():
        if "_proj" in k:
            w = w.to(torch.bfloat16).float() + 2 * (torch.randn(w.shape[0], rank) * 0.01) @ (torch.randn(rank, w.shape[1]) * 0.03)
        out[k] = w
    return out


def cast(model, dtype):
    return {k: w.to(dtype) for k, w in model.items()}


def path(*names):
    p = os.path.join(root, *names)
    os.makedirs(os.path.dirname(p), exist_ok=True)
    return p


def in_hub(name, model):
    """A repository in the cache of huggingface_hub: blobs by their hashes, and links to them."""
    repo = os.path.join("hub", "models--org--" + name)
    keys = list(model)
    half = len(keys) // 2
    parts = {"model-00001-of-00002.safetensors": keys[:half], "model-00002-of-00002.safetensors": keys[half:]}
    weight_map = {k: part for part, ks in parts.items() for k in ks}
    for part, ks in parts.items():
        tmp = path(repo, "tmp")
        save_file({k: model[k].contiguous() for k in ks}, tmp, metadata={"format": "pt"})
        keep(repo, part, tmp)
    for file, content in (("config.json", {"hidden_size": width}), ("model.safetensors.index.json", {"weight_map": weight_map})):
        tmp = path(repo, "tmp")
        with open(tmp, "w") as f:
            json.dump(content, f)
        keep(repo, file, tmp)


def keep(repo, name, tmp):
    with open(tmp, "rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    blob, link = path(repo, "blobs", digest), path(repo, "snapshots", "main", name)
    os.rename(tmp, blob)
    os.symlink(os.path.relpath(blob, os.path.dirname(link)), link)


master = weights()
base = cast(master, torch.bfloat16)
in_hub("base", base)
for i in (1, 2, 3):
    frozen = ("model.embed_tokens.weight",) if i == 3 else ()
    in_hub(f"chat-{i}", cast(trained({k: w.float() for k, w in base.items()}, 3e-3, frozen), torch.bfloat16))
in_hub("merged", cast(merged(master), torch.bfloat16))

save_file(master, path("precision", "single.safetensors"))
save_file(base, path("precision", "brain.safetensors"))
save_file(cast(master, torch.float16), path("precision", "half.safetensors"))
torch.save(cast(master, torch.float16), path("precision", "pytorch_model.bin"))
os.link(path("precision", "brain.safetensors"), path("linked", "model.safetensors"))
shutil.copy(path("precision", "half.safetensors"), path("copied", "renamed.safetensors"))

writer = gguf.GGUFWriter(path("gguf", "model.Q8_0.gguf"), "llama")
for k, w in master.items():
    w = w.numpy()
    if w.ndim == 2:
        writer.add_tensor(k, gguf.quants.quantize(w, gguf.GGMLQuantizationType.Q8_0), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    else:
        writer.add_tensor(k, w)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

model = {k: w for k, w in trained(master, 0.05).items() if "layers.0" in k or "layers.1" in k}
first, second = {k: torch.zeros_like(w) for k, w in model.items()}, {k: torch.zeros_like(w) for k, w in model.items()}
for step in range(1, 4):
    for _ in range(3):
        for k, w in model.items():
            g = 1e-3 * torch.randn(w.shape)
            first[k] = 0.9 * first[k] + 0.1 * g
            second[k] = 0.999 * second[k] + 0.001 * g * g
            model[k] = w - 1e-5 * first[k] / (second[k].sqrt() + 1e-8)
    state = {i: {"step": torch.tensor(float(step)), "exp_avg": first[k], "exp_avg_sq": second[k]} for i, k in enumerate(model)}
    torch.save({"model": model, "optimizer": {"state": state, "param_groups": [{"lr": 1e-5, "params": list(state)}]}},
               path("runs", "adamw", str(100 * step), "checkpoint.pt"))

rng = np.random.default_rng(1)
with open(path("data", "tokens.bin"), "wb") as f:
    f.write((rng.zipf(1.3, 60 * width) % 30000).astype(np.uint16).tobytes())
with open(path("data", "sparse.bin"), "wb") as f:
    f.truncate(1 << 30)
    f.write(rng.bytes(100_000))
with open(path("data", "notes.txt"), "w") as f:
    f.write("small\n" * 100)
seen, total = set(), 0
for folder, _, files in os.walk(root):
    for name in files:
        st = os.lstat(os.path.join(folder, name))
        if not os.path.islink(os.path.join(folder, name)) and st.st_ino not in seen and name != "sparse.bin":
            seen.add(st.st_ino)
            total += st.st_size
print(total)
