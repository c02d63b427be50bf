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


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")


def vocabulary(name):
    """The tokens and merges of a vocabulary that comes with llama.cpp."""
    sys.path.insert(0, os.path.join(converter(), "gguf-py"))
    import gguf
    reader = gguf.GGUFReader(os.path.join(converter(), "models", f"ggml-vocab-{name}.gguf"))
    return [reader.fields["tokenizer.ggml." + k].contents() for k in ("tokens", "merges")]


def added(i, content, special=True):
    return {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": special}


def byte_pairs(folder, tokens, merges, extra, pattern, post, pairs=True, normalizer=None, **model):
    """A tokenizer.json of a byte-level BPE."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    write(folder, "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": extra, "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}, level]},
        "post_processor": post, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {t: i for i, t in enumerate(tokens)}, "merges": [m.split(" ") for m in merges] if pairs else merges}
                 | model})


def llama3(folder):
    model(folder, "Llama", "bfloat16", vocab_size=128256, hidden_size=32, num_attention_heads=2, num_key_value_heads=1,
          tie_word_embeddings=True, bos_token_id=128000, eos_token_id=128001, max_position_embeddings=131072,
          rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
                           "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})
    tokens, merges = vocabulary("llama-bpe")
    extra = [added(i, t) for i, t in enumerate(tokens) if i >= 128000]
    bos = {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}
    byte_pairs(folder, tokens[:128000], merges, extra, LLAMA3, {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        {"type": "TemplateProcessing", "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
         "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}}, bos, {"Sequence": {"id": "B", "type_id": 1}}],
         "special_tokens": {"<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [128000], "tokens": ["<|begin_of_text|>"]}}},
    ]}, ignore_merges=True)
    write(folder, "tokenizer_config.json", {
        "added_tokens_decoder": {str(a["id"]): {k: v for k, v in a.items() if k != "id"} for a in extra},
        "bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "chat_template": "{{ x }}",
        "clean_up_tokenization_spaces": True, "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": 131072, "tokenizer_class": "PreTrainedTokenizerFast"})
    write(folder, "special_tokens_map.json", {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"})


def qwen(folder, extra, **config):
    tokens, merges = vocabulary("qwen2")
    extra = [added(151643 + i, t, special) for i, (t, special) in enumerate(extra)]
    byte_pairs(folder, tokens[:151643], merges, extra, LLAMA3.replace("{1,3}", ""),
               {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}, pairs=False,
               normalizer={"type": "NFC"}, continuing_subword_prefix="", end_of_word_suffix="")
    write(folder, "tokenizer_config.json", {
        "add_bos_token": False, "add_prefix_space": False,
        "added_tokens_decoder": {str(a["id"]): {k: v for k, v in a.items() if k != "id"} for a in extra},
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "bos_token": None, "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>", "unk_token": None, "errors": "replace", "split_special_tokens": False,
        "clean_up_tokenization_spaces": False, "model_max_length": 131072, "tokenizer_class": "Qwen2Tokenizer",
        "chat_template": "{{ y }}"} | config)


QWEN = [("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True)]


def qwen2(folder):
    model(folder, "Qwen2", "bfloat16", vocab_size=151936, hidden_size=32, num_attention_heads=2, num_key_value_heads=1,
          tie_word_embeddings=True)
    qwen(folder, QWEN)
    write(folder, "README.md", CARD)


def qwen3(folder):
    model(folder, "Qwen3", "bfloat16", shards=2, vocab_size=151936, hidden_size=32, num_attention_heads=2,
          num_key_value_heads=1, head_dim=32)
    qwen(folder, QWEN + [("<tool_call>", False), ("</tool_call>", False), ("<|fim_prefix|>", False)])


def mixtral(folder):
    """Experts in several files, as the hub has them: the config says what transformers has under other names."""
    model(folder, "Mixtral", "bfloat16", shards=4, num_local_experts=4, num_experts_per_tok=2, vocab_size=600)
    pieces(folder)
    write(folder, "tokenizer_config.json", special())
    config = json.load(open(os.path.join(folder, "config.json")))
    config.pop("head_dim"), config.pop("rope_parameters")
    write(folder, "config.json", config | {"rope_theta": 1e6, "num_local_experts": 4})


def qwen2moe(folder):
    model(folder, "Qwen2Moe", "float16", shards=3, vocab_size=151936, hidden_size=32, num_attention_heads=2,
          num_key_value_heads=2, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=24,
          shared_expert_intermediate_size=40, norm_topk_prob=True)
    qwen(folder, QWEN)


def qwen3moe(folder):
    """Twelve experts: 10 comes before 2 by name."""
    model(folder, "Qwen3Moe", "bfloat16", shards=2, vocab_size=151936, hidden_size=32, num_attention_heads=2,
          num_key_value_heads=1, head_dim=32, num_experts=12, num_experts_per_tok=3, moe_intermediate_size=16,
          tie_word_embeddings=True)
    qwen(folder, QWEN)
    config = json.load(open(os.path.join(folder, "config.json")))
    write(folder, "config.json", config | {"num_experts": config.pop("num_local_experts"), "max_window_layers": 2,
                                           "id2label": {"0": "LABEL_0", "1": "LABEL_1"}})


def fused(folder):
    """Experts as transformers has them in memory."""
    import torch
    from safetensors.torch import load_file, save_file
    qwen3moe(folder)
    for f in glob.glob(os.path.join(folder, "model*")):
        if f.endswith(".json"):
            os.remove(f)
            continue
        os.rename(f, f + ".old")
    t = {}
    for f in glob.glob(os.path.join(folder, "*.old")):
        t.update(load_file(f))
        os.remove(f)
    for layer in range(2):
        at = f"model.layers.{layer}.mlp.experts."
        take = lambda e, w: t.pop(f"{at}{e}.{w}_proj.weight")
        t[at + "gate_up_proj"] = torch.stack([torch.cat([take(e, "gate"), take(e, "up")]) for e in range(12)])
        t[at + "down_proj"] = torch.stack([take(e, "down") for e in range(12)])
    save_file(t, os.path.join(folder, "model.safetensors"))


def resaved(folder):
    """A vocabulary of pieces as transformers saves it: without the pieces."""
    import transformers
    model(folder, "Llama", "bfloat16", vocab_size=616)
    at = os.path.join(folder, "pieces")
    os.makedirs(at)
    pieces(at)
    shutil.copy(os.path.join(folder, "config.json"), at)
    write(at, "tokenizer_config.json", special({}, eos_token="</s>", unk_token="<unk>", chat_template="{{ messages }}"))
    t = transformers.AutoTokenizer.from_pretrained(at)
    shutil.rmtree(at)
    t.add_tokens(["<|im_start|>", "hello", "\u2581a b"])
    t.add_special_tokens({"pad_token": "<pad>"})
    t.save_pretrained(folder)


def older(folder):
    """The same as transformers saved it before."""
    resaved(folder)
    model(folder, "Mistral", "float16", vocab_size=616, num_key_value_heads=1)
    o = json.load(open(os.path.join(folder, "tokenizer.json")))
    o["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
    o["pre_tokenizer"] = None
    o["model"]["merges"] = [" ".join(m) for m in o["model"]["merges"]]
    write(folder, "tokenizer.json", o)
    as_token = lambda s, **more: {"content": s, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False} | more
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    write(folder, "tokenizer_config.json", {k: as_token(v, __type="AddedToken") for k, v in named.items()} | {
        "add_bos_token": True, "add_eos_token": False, "clean_up_tokenization_spaces": False, "legacy": False,
        "model_max_length": 1000000000000000019884624838656, "padding_side": "left", "sp_model_kwargs": {}, "tokenizer_class": "LlamaTokenizer",
        "additional_special_tokens": ["<ctl>"], "added_tokens_decoder": {
            str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in o["added_tokens"]}})
    write(folder, "special_tokens_map.json", {k: as_token(v) for k, v in named.items()})
    write(folder, "added_tokens.json", {t["content"]: t["id"] for t in o["added_tokens"] if t["id"] >= 600})


def begins(token, i):
    """A post-processor that puts a token before a text."""
    first = {"SpecialToken": {"id": token, "type_id": 0}}
    text = lambda s, n: {"Sequence": {"id": s, "type_id": n}}
    return {"type": "TemplateProcessing", "single": [first, text("A", 0)], "pair": [first, text("A", 0), first, text("B", 1)],
            "special_tokens": {token: {"id": token, "ids": [i], "tokens": [token]}}}


def distilled(folder, **config):
    """The tokenizer of DeepSeek-R1-Distill-Qwen: Qwen's vocabulary with other tokens added."""
    bar = "\uff5c"
    extra = [(f"<{bar}end\u2581of\u2581sentence{bar}>", True), (f"<{bar}User{bar}>", False), (f"<{bar}Assistant{bar}>", False),
             (f"<{bar}begin\u2581of\u2581sentence{bar}>", True), ("<|EOT|>", False), ("<think>", False), ("[INST\u2581\uff5c]", False)]
    model(folder, "Qwen2", "bfloat16", **dict(vocab_size=151936, hidden_size=32, num_attention_heads=2, num_key_value_heads=1,
                                              tie_word_embeddings=True) | config)
    tokens, merges = vocabulary("qwen2")
    byte_pairs(folder, tokens[:151643], merges, [added(151643 + i, t, s) for i, (t, s) in enumerate(extra)],
               LLAMA3.replace("{1,3}", ""), begins(extra[3][0], 151646), normalizer=None)
    token = lambda s: {"__type": "AddedToken", "content": s, "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}
    write(folder, "tokenizer_config.json", {
        "add_bos_token": True, "add_eos_token": False, "bos_token": token(extra[3][0]), "clean_up_tokenization_spaces": False,
        "eos_token": token(extra[0][0]), "legacy": True, "model_max_length": 16384, "pad_token": token(extra[0][0]), "sp_model_kwargs": {},
        "unk_token": None, "tokenizer_class": "LlamaTokenizerFast", "chat_template": "{{ z }}"})


def distilled3(folder):
    """The same beside a Qwen3, which transformers loads otherwise."""
    distilled(folder)
    model(folder, "Qwen3", "bfloat16", vocab_size=151936, hidden_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=32)


def smaug(folder):
    """Llama 3's vocabulary without a token before a text."""
    llama3(folder)
    o = json.load(open(os.path.join(folder, "tokenizer.json")))
    write(folder, "tokenizer.json", o | {"post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}})


MODELS = {"distilled": distilled, "distilled3": distilled3, "smaug": smaug, "resaved": resaved, "older": older, "llama": llama, "tied": tied, "mistral": mistral, "codellama": codellama, "llama3": llama3, "qwen2": qwen2,
          "qwen3": qwen3, "mixtral": mixtral, "qwen2moe": qwen2moe, "qwen3moe": qwen3moe, "fused": fused}


def models(folder, *names):
    for name in names or MODELS:
        to = os.path.join(folder, name)
        shutil.rmtree(to, ignore_errors=True)
        os.makedirs(to)
        MODELS[name](to)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
