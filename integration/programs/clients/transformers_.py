"""transformers: a small random GPT-2, saved in shards; from_pretrained maps them."""
import functools
import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, logging

EXACT = True
logging.set_verbosity_error()
logging.disable_progress_bar()
os.environ["HF_HUB_OFFLINE"] = "1"


@functools.lru_cache(maxsize=2)
def model(version, size):
    width, layers = 64, 2
    while 12 * width * width * layers * 4 < size and width < 1024:
        width *= 2
    layers = max(2, size // (12 * width * width * 4))
    torch.manual_seed(0)
    m = GPT2LMHeadModel(GPT2Config(vocab_size=300, n_positions=64, n_embd=width, n_layer=layers, n_head=4))
    with torch.no_grad():
        m.transformer.ln_f.weight.add_(version)
        m.transformer.h[-1].mlp.c_fc.weight.mul_(1 + version)
    return m


def save(dir, version, size):
    model(version, size).save_pretrained(os.path.join(dir, "gpt2"), max_shard_size=max(size // 3, 100_000))


def saver(dir, version, size):
    m = model(version, size)
    return lambda: m.save_pretrained(os.path.join(dir, "gpt2"), max_shard_size=max(size // 3, 100_000))


def load(dir):
    m = GPT2LMHeadModel.from_pretrained(os.path.join(dir, "gpt2"), local_files_only=True)
    return m.state_dict()


def ways(dir):
    m = GPT2LMHeadModel.from_pretrained(os.path.join(dir, "gpt2"), local_files_only=True, dtype=torch.bfloat16).eval()
    yield "bfloat16", m.state_dict()
    with torch.no_grad():
        yield "logits", m(torch.arange(8)[None]).logits
