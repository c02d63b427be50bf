"""turned.py DIR: models in the layouts of several frameworks, the numbers of each the same. Prints a line of JSON a file:
path, kind, and of, the file that has the same numbers in another layout, which comes before.

    gpt2/model.safetensors     GPT-2, of one layer of 768, as transformers has it: inputs by outputs
    gpt2/linear.pt             outputs by inputs, and other names
    gpt2/linear-bf16.safetensors
    gpt2/model-F16.gguf, model-Q8_0.gguf   as llama.cpp's converter turns it
    cnn/torch.pt               a network of convolutions and linear layers
    cnn/keras.h5               the same as Keras has it: kernels with their places first, and heads apart
    back/keras.h5, torch.pt    another, the other way around"""
import json
import os
import sys

import gguf
import h5py
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

out = sys.argv[1]
torch.manual_seed(11)
torch.set_num_threads(1)


def path(name):
    full = os.path.join(out, name)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    return full


def tell(name, kind, of=""):
    print(json.dumps({"path": name, "kind": kind, "of": of}), flush=True)


def gpt2():
    first = "gpt2/model.safetensors"
    config = GPT2Config(vocab_size=512, n_positions=128, n_embd=768, n_layer=1, n_head=12)
    model = GPT2LMHeadModel(config).transformer.state_dict()
    save_file(model, path(first), metadata={"format": "pt"})
    tell(first, "GPT-2")
    turned = {n: w.t().contiguous() if any(c in n for c in ("c_attn.weight", "c_proj.weight", "c_fc.weight")) else w
              for n, w in model.items()}
    linear = {"blocks." + n.replace("c_attn", "qkv").replace("c_fc", "up").replace("c_proj", "down"): w for n, w in turned.items()}
    torch.save(linear, path("gpt2/linear.pt"))
    tell("gpt2/linear.pt", "F32", first)
    save_file({n: w.bfloat16() for n, w in linear.items()}, path("gpt2/linear-bf16.safetensors"))
    tell("gpt2/linear-bf16.safetensors", "BF16", first)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT2, 1)
    for kind in ("F16", "Q8_0"):
        as_type = gguf.GGMLQuantizationType[kind]
        writer = gguf.GGUFWriter(path(f"gpt2/model-{kind}.gguf"), "gpt2")
        for n, w in turned.items():
            to = names.get_name(n, try_suffixes=(".weight", ".bias"))
            if w.dim() == 2:
                writer.add_tensor(to, gguf.quants.quantize(w.numpy(), as_type), raw_dtype=as_type)
            else:
                writer.add_tensor(to, w.numpy())
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        tell(f"gpt2/model-{kind}.gguf", kind, first)


def network():
    return nn.Sequential(nn.Conv2d(3, 64, 7), nn.Conv2d(64, 192, 3), nn.Conv2d(192, 256, 3), nn.Conv2d(256, 512, 1),
                         nn.Conv1d(256, 256, 5), nn.Linear(512, 512), nn.Linear(512, 1000), nn.Linear(512, 256))


def as_torch(net, name):
    torch.save(net.state_dict(), path(name))


def as_keras(net, name):
    with h5py.File(path(name), "w") as f:
        for i, layer in enumerate(net):
            w = layer.weight.detach()
            w = w.permute(*range(2, w.dim()), 1, 0)
            if i == 5:  # by heads of 64
                w = w.reshape(512, 8, 64)
            f[f"layers/{i}/vars/kernel"] = w.contiguous().numpy()
            f[f"layers/{i}/vars/bias"] = layer.bias.detach().numpy()


gpt2()
net = network()
as_torch(net, "cnn/torch.pt")
tell("cnn/torch.pt", "torch")
as_keras(net, "cnn/keras.h5")
tell("cnn/keras.h5", "Keras", "cnn/torch.pt")
net = network()
as_keras(net, "back/keras.h5")
tell("back/keras.h5", "Keras")
as_torch(net, "back/torch.pt")
tell("back/torch.pt", "torch", "back/keras.h5")
