"""llama.cpp's converter, and small models for it.

    converted.py models FOLDER [NAME]...      writes the models (see MODELS) to FOLDER/NAME
    converted.py convert FOLDER TYPE FILE...  runs convert_hf_to_gguf.py on folders, each to a file in a type

The converter is the one that scripts/setup-ggml puts beside the quantisers."""
import contextlib
import glob
import io
import json
import os
import random
import runpy
import shutil
import sys


def converter():
    """The folder of convert_hf_to_gguf.py; None where there is none."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    found = glob.glob(os.path.join(cache, "ckptfs/tools/converter-*/convert_hf_to_gguf.py"))
    return os.path.dirname(max(found)) if found else None


def convert(*args):
    """Runs the converter on (folder, type, file) after (folder, type, file). Says of each that fails why."""
    sys.path.insert(0, converter())
    import logging
    logging.disable(logging.WARNING)
    for folder, kind, out in zip(args[::3], args[1::3], args[2::3]):
        sys.argv = ["convert_hf_to_gguf.py", folder, "--outtype", kind, "--outfile", out]
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                runpy.run_path(os.path.join(converter(), "convert_hf_to_gguf.py"), run_name="__main__")
        except BaseException as e:
            if os.path.exists(out):
                os.remove(out)
            print(json.dumps({"folder": folder, "failed": f"{type(e).__name__}: {e}"}))


def words(n):
    rng = random.Random(1)
    return ["".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 9))) for _ in range(n)]


def text():
    rng, w = random.Random(2), words(800)
    return [" ".join(rng.choice(w) for _ in range(12)) for _ in range(2000)]


def pieces(folder, kind="bpe", vocab=600):
    import sentencepiece
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text()), model_writer=out, vocab_size=vocab, model_type=kind, byte_fallback=True,
        user_defined_symbols=["<sep>"], control_symbols=["<ctl>"], minloglevel=2)
    write(folder, "tokenizer.model", out.getvalue())


def write(folder, name, what):
    with open(os.path.join(folder, name), "wb") as f:
        f.write(what if isinstance(what, bytes) else what.encode() if isinstance(what, str) else json.dumps(what).encode())


def model(folder, architecture, dtype, shards=1, **config):
    """A model with random weights."""
    import torch
    import transformers
    torch.manual_seed(len(folder))
    base = dict(vocab_size=640, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=512)
    made = getattr(transformers, architecture + "Config")(**base | config)
    m = getattr(transformers, architecture + "ForCausalLM")(made).to(getattr(torch, dtype))
    with torch.no_grad():
        for p in m.parameters():
            if p.dim() == 1:
                p.add_(torch.randn(p.shape) * 0.1)
    size = sum(p.numel() * p.element_size() for p in m.parameters())
    m.save_pretrained(folder, **({"max_shard_size": size // shards + 4096} if shards > 1 else {}))
    return m


def special(extra=None, **more):
    """A tokenizer_config.json of a vocabulary of pieces."""
    added = {"0": "<unk>", "1": "<s>", "2": "</s>"} | (extra or {})
    return {"add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "eos_token": {"content": "</s>"},
            "added_tokens_decoder": {k: {"content": v, "special": int(k) < 3} for k, v in added.items()},
            "tokenizer_class": "LlamaTokenizer"} | more


CARD = """---
# a comment
license: apache-2.0
language:
- en
- no
tags: [merge, "text generation", 7b]
pipeline_tag: text-generation
base_model:
  - meta-llama/Llama-2-7b-chat-hf
  - https://huggingface.co/someone/Tiny-v1.5-1.1B
datasets: wikimedia/wikipedia
extra_gated_prompt: >-
  Anything: 'goes
    here, [too
model-index:
  - name: x
    results:
      - task:
          type: text-generation
---
# Tiny
"""


def llama(folder):
    model(folder, "Llama", "float32")
    pieces(folder)
    write(folder, "tokenizer_config.json", special({"610": "<|im|>", "611": "\u2581foo"}, chat_template="{{ messages }}"))
    write(folder, "added_tokens.json", {"<pad>": 600, "hello": 601, "beyond": 9999})


def tied(folder):
    model(folder, "Llama", "bfloat16", shards=2, tie_word_embeddings=True, num_key_value_heads=4, attention_bias=True,
          mlp_bias=True, rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 12345.678})
    pieces(folder, "unigram")
    write(folder, "README.md", CARD)
    write(folder, "generation_config.json", {"temperature": 0.6, "top_p": 0.9, "top_k": 50, "repetition_penalty": 1})


def mistral(folder):
    model(folder, "Mistral", "float16", shards=3, head_dim=32, vocab_size=600,
          rope_parameters={"rope_type": "yarn", "factor": 2.0, "rope_theta": 1000000, "beta_fast": 16,
                           "original_max_position_embeddings": 256})
    pieces(folder)
    write(folder, "tokenizer_config.json", special(
        add_prefix_space=None, chat_template=[{"name": "default", "template": "a"}, {"name": "tool use", "template": "b"}]))
    write(folder, "tokenizer.json", {
        "added_tokens": [{"id": 1, "content": "<s>"}, {"id": 2, "content": "</s>"}, {"id": 0, "content": "<unk>"}],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}]},
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}},
                                    {"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "B"}}]}})
    config = json.load(open(os.path.join(folder, "config.json")))
    write(folder, "config.json", config | {"_name_or_path": "mistralai/Tiny-170k-Instruct-v0.3"})


def codellama(folder):
    model(folder, "Llama", "bfloat16", vocab_size=32016, hidden_size=32, num_attention_heads=2, num_key_value_heads=1)
    pieces(folder)
    write(folder, "tokenizer_config.json", special(add_prefix_space=False))
    write(folder, "chat_template.jinja", "a\r\nb\n")


MODELS = {"llama": llama, "tied": tied, "mistral": mistral, "codellama": codellama}


def models(folder, *names):
    for name in names or MODELS:
        to = os.path.join(folder, name)
        shutil.rmtree(to, ignore_errors=True)
        os.makedirs(to)
        MODELS[name](to)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
