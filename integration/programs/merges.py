"""merges.py DIR [MERGE...]: a small Llama in bfloat16, fine-tunes of it, and what mergekit makes of them by each of its usual
methods, or those merges. Prints a line of JSON a file: path and kind, in an order in which each comes behind what it is made of."""
import json
import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"  # else DeepSpeed, which mergekit may find, says on standard output that it found no other

import torch
import yaml
from mergekit.config import MergeConfiguration
from mergekit.merge import run_merge
from mergekit.options import MergeOptions
from transformers import LlamaConfig, LlamaForCausalLM

out = sys.argv[1]
torch.manual_seed(5)
torch.set_num_threads(1)


def tell(name):
    print(json.dumps({"path": f"{name}/model.safetensors", "kind": name}), flush=True)


def save(name, model):
    model.save_pretrained(os.path.join(out, name))
    tell(name)


base = LlamaForCausalLM(LlamaConfig(hidden_size=512, intermediate_size=1408, num_hidden_layers=3, num_attention_heads=8,
                                    num_key_value_heads=4, vocab_size=2000, tie_word_embeddings=False)).to(torch.bfloat16)
save("base", base)
shared = [0.03 * p.float().std() * torch.randn(p.shape) for p in base.parameters()]  # what all learn
for name in "ABC":
    tuned = LlamaForCausalLM(base.config).to(torch.bfloat16)
    with torch.no_grad():
        for p, q, move in zip(base.parameters(), tuned.parameters(), shared):
            q.copy_(p.float() + move + 0.03 * p.float().std() * torch.randn(p.shape))
    save(name, tuned)

BASE = {"base_model": "base"}
AB, ABC = "AB", "ABC"
MERGES = {  # method, models with their parameters, and what the method takes besides
    "linear": ("linear", {"A": {"weight": 0.7}, "B": {"weight": 0.3}}, {}),
    "linear-float32": ("linear", {"A": {"weight": 0.7}, "B": {"weight": 0.3}}, {"dtype": "float32", "out_dtype": "bfloat16"}),
    "linear-kept-float32": ("linear", {"A": {"weight": 0.7}, "B": {"weight": 0.3}}, {"dtype": "float32"}),
    "linear-gradient": ("linear", {"A": {"weight": [0.0, 0.5, 1.0]}, "B": {"weight": 0.3}}, {}),
    "soup": ("linear", {m: {"weight": 1.0} for m in ABC}, {}),
    "slerp": ("slerp", {"A": {}, "B": {}}, {"base_model": "A", "parameters": {"t": 0.4}}),
    "slerp-usual": ("slerp", {"A": {}, "B": {}}, {"base_model": "A", "parameters": {"t": [
        {"filter": "self_attn", "value": [0, 0.5, 1]}, {"filter": "mlp", "value": [1, 0.5, 0]}, {"value": 0.5}]}}),
    "nuslerp": ("nuslerp", {"A": {"weight": 0.6}, "B": {"weight": 0.4}}, {}),
    "task": ("task_arithmetic", {"A": {"weight": 0.6}, "B": {"weight": 0.5}}, BASE),
    "task-float32": ("task_arithmetic", {"A": {"weight": 0.6}, "B": {"weight": 0.5}},
                     {**BASE, "dtype": "float32", "out_dtype": "bfloat16"}),
    "tasks": ("task_arithmetic", {"A": {"weight": 0.3}, "B": {"weight": 0.4}, "C": {"weight": 0.25}}, BASE),
    "ties": ("ties", {m: {"weight": 0.5, "density": 0.5} for m in AB}, {**BASE, "parameters": {"normalize": True}}),
    "dare-linear": ("dare_linear", {m: {"weight": 0.5, "density": 0.5} for m in AB}, BASE),
    "dare-ties": ("dare_ties", {m: {"weight": 0.5, "density": 0.5} for m in AB}, BASE),
    "stock": ("model_stock", {m: {} for m in ABC}, BASE),
    "karcher": ("karcher", {m: {} for m in AB}, {}),
    "nearswap": ("nearswap", {"A": {}, "B": {}}, {"base_model": "A", "parameters": {"t": 0.001}}),
}
os.chdir(out)
for name, (method, models, rest) in MERGES.items():
    if len(sys.argv) > 2 and name not in sys.argv[2:]:
        continue
    config = {"merge_method": method, "dtype": "bfloat16",
              "models": [{"model": m, "parameters": p} if p else {"model": m} for m, p in models.items()], **rest}
    try:
        run_merge(MergeConfiguration.model_validate(config), name, config_source=yaml.safe_dump(config),
              options=MergeOptions(copy_tokenizer=False, quiet=True, write_model_card=False, random_seed=1))
    except Exception as e:
        print(name, repr(e)[:300], file=sys.stderr)
        continue
    tell(name)
