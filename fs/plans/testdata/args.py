"""Writes args.pt and others: what Megatron-LM's checkpoints have of its arguments, for the model of megatron_test.go."""
from argparse import Namespace

import torch

ARGS = dict(num_layers=2, hidden_size=16, ffn_hidden_size=12, num_attention_heads=4, kv_channels=8, group_query_attention=True,
            num_query_groups=2, normalization="RMSNorm", swiglu=True, apply_layernorm_1p=False, rotary_interleaved=False,
            lr=1e-4, save="/checkpoints", params_dtype=torch.bfloat16)
for name, change in {"args": {}, "args-1p": {"apply_layernorm_1p": True}, "args-gelu": {"swiglu": False},
                     "args-layernorm": {"normalization": "LayerNorm"},
                     "args-whole": {"group_query_attention": False, "num_query_groups": 1}}.items():
    torch.save({"iteration": 1, "args": Namespace(**{**ARGS, **change})}, name + ".pt")
torch.save({"iteration": 1}, "args-none.pt")
torch.save({"iteration": 1, "args": Namespace(lr=1e-4)}, "args-few.pt")
