"""kin.py RUNS: a base, fine-tunes of it, merges of these, and the base quantised. Nothing declares a parent.

    kin-base/1/model.safetensors     bfloat16
    kin-chat/1, kin-code/1           the base, all of it changed a little
    kin-merge/1                      0.7 chat + 0.3 code
    kin-one/1, kin-two/1             two more, and
    kin-mix/1                        0.6 one + 0.4 two
    kin-quants/1/model.Q8_0.gguf     the base, by gguf's own quantiser, with the rows and names of llama.cpp
    kin-quants/1/model.fp8.safetensors   the base in FP8, with a scale for each row"""
import sys
from pathlib import Path

import gguf
import torch
from safetensors.torch import save_file

runs = Path(sys.argv[1])
torch.manual_seed(7)
torch.set_num_threads(1)


def shapes():
    yield "model.embed_tokens.weight", (512, 256)
    for i in range(2):
        for name in ("gate", "up"):
            yield f"model.layers.{i}.mlp.{name}_proj.weight", (512, 256)
        yield f"model.layers.{i}.mlp.down_proj.weight", (256, 512)


def path(run, name):
    step = runs / run / "1"
    step.mkdir(parents=True, exist_ok=True)
    return step / name


def save(run, model):
    save_file(model, path(run, "model.safetensors"), metadata={"format": "pt"})
    return model


def tuned(model):
    return {n: (w.float() * (1 + 3e-2 * torch.randn(w.shape))).bfloat16() for n, w in model.items()}


# Each row has a scale of its own, as in trained models.
base = save("kin-base", {n: (0.02 * torch.exp(0.4 * torch.randn(s[0], 1)) * torch.randn(s)).bfloat16() for n, s in shapes()})
chat = save("kin-chat", tuned(base))
code = save("kin-code", tuned(base))
save("kin-merge", {n: (0.7 * chat[n].float() + 0.3 * code[n].float()).bfloat16() for n in base})
one = save("kin-one", tuned(base))
two = save("kin-two", tuned(base))
save("kin-mix", {n: (0.6 * one[n].float() + 0.4 * two[n].float()).bfloat16() for n in base})

Q8_0 = gguf.GGMLQuantizationType.Q8_0
names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
writer = gguf.GGUFWriter(path("kin-quants", "model.Q8_0.gguf"), "llama")
for n, w in base.items():
    writer.add_tensor(names.get_name(n, try_suffixes=(".weight",)), gguf.quants.quantize(w.float().numpy(), Q8_0), raw_dtype=Q8_0)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

eights = {}
for n, w in base.items():
    scale = w.abs().amax(1, keepdim=True).float() / 448
    eights[n] = (w.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    eights[n + "_scale"] = scale
save_file(eights, path("kin-quants", "model.fp8.safetensors"), metadata={"format": "pt"})
