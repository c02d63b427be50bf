"""PEFT: a LoRA adapter of a small GPT-2 beside its base; loaded, and merged."""
import functools
import os

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import GPT2LMHeadModel

from transformers_ import model as base

EXACT = True
INEXACT = ("adapter_config.json",)  # lists sets, in the order of a hash


@functools.lru_cache(maxsize=2)
def adapted(version, size):
    torch.manual_seed(version)
    m = get_peft_model(GPT2LMHeadModel(base(1, size).config), LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True))
    for name, p in m.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(p, std=0.02)
    return m


def save(dir, version, size):
    if not os.path.exists(os.path.join(dir, "base")):
        base(1, size).save_pretrained(os.path.join(dir, "base"))
    adapted(version, size).save_pretrained(os.path.join(dir, "adapter"))
    onto(dir).merge_and_unload().save_pretrained(os.path.join(dir, "merged"))


def onto(dir):
    m = GPT2LMHeadModel.from_pretrained(os.path.join(dir, "base"), local_files_only=True)
    return PeftModel.from_pretrained(m, os.path.join(dir, "adapter"))


def load(dir):
    return onto(dir).state_dict()


def ways(dir):
    with torch.no_grad():
        yield "merged", GPT2LMHeadModel.from_pretrained(os.path.join(dir, "merged"), local_files_only=True).state_dict()
