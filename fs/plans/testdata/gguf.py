"""Writes gguf.json: the SHA-256 of files as llama.cpp's converter writes them, and what they are made of.

    python gguf.py > gguf.json

The converter is the one that scripts/setup-ggml brings. The tensors of a folder are [name, dtype, shape, pattern, seed],
as in files.json; its other files are text, or base64.
"""
import base64, hashlib, io, json, os, sys, tempfile
from contextlib import redirect_stdout

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../../integration/programs"))
import converted
with redirect_stdout(io.StringIO()):
    sys.argv = ["reference.py"]
    import reference
from safetensors.torch import save_file


def layers(n, hidden, inner, keys, dtype, kind, seed):
    out = []
    for i in range(n):
        for name, shape in [("input_layernorm", [hidden]), ("mlp.down_proj", [hidden, inner]), ("mlp.gate_proj", [inner, hidden]),
                            ("mlp.up_proj", [inner, hidden]), ("post_attention_layernorm", [hidden]),
                            ("self_attn.k_proj", [keys, hidden]), ("self_attn.o_proj", [hidden, hidden]),
                            ("self_attn.q_proj", [hidden, hidden]), ("self_attn.v_proj", [keys, hidden])]:
            seed += 1
            out.append([f"model.layers.{i}.{name}.weight", dtype, shape, kind, seed])
    return out


def experts(layer, n, hidden, inner, dtype, kind, seed):
    """The experts of a layer of Mixtral."""
    at = f"model.layers.{layer}.block_sparse_moe."
    return [[f"{at}experts.{x}.{w}.weight", dtype, [hidden, inner] if w == "w2" else [inner, hidden], kind, seed + 3 * x + i]
            for x in range(n) for i, w in enumerate(["w1", "w2", "w3"])] + [[at + "gate.weight", dtype, [n, hidden], kind, seed - 1]]


def config(**more):
    return json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1024, "hidden_size": 64,
                       "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
                       "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": [2, 3],
                       "torch_dtype": "bfloat16", "some_key_of_a_tool": {"a": 1}} | more)


def varint(n):
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


def pieces():
    """A SentencePiece model, as its trainer would write it."""
    def field(n, b):
        return varint(n << 3 | 2) + varint(len(b)) + b
    import struct
    out = b""
    for i, (text, kind) in enumerate([("<unk>", 2), ("<s>", 3), ("</s>", 3), ("\u2581a", 1), ("gone", 5), ("<u>", 4)]):
        out += field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", -i / 3) + (b"\x18" + varint(kind) if kind != 1 else b""))
    return base64.b64encode(out + field(2, b"\x18\x02")).decode()


def fallback():
    """A vocabulary as transformers saves it without its pieces."""
    added = lambda i, s, special: {"id": i, "content": s, "single_word": False, "lstrip": False, "rstrip": False,
                                   "normalized": not special, "special": special}
    token = lambda s: {"SpecialToken": {"id": s, "type_id": 0}}
    text = lambda s: {"Sequence": {"id": s, "type_id": 0}}
    vocab = ["<unk>", "<s>", "</s>", "<0x0A>", "<0xfF>", "\u2581", "a", "b", "ab", "\u2581ab"]
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added(0, "<unk>", True), added(1, "<s>", True), added(2, "</s>", True), added(10, "<|x|>", False),
                             added(11, "<pad>", True)],
            "normalizer": None,
            "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False},
            "post_processor": {"type": "TemplateProcessing", "single": [token("<s>"), text("A")],
                               "pair": [token("<s>"), text("A"), token("<s>"), text("B")],
                               "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
            "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                                                         {"type": "ByteFallback"}, {"type": "Fuse"},
                                                         {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": {s: i for i, s in enumerate(vocab)},
                      "merges": [["a", "b"], ["\u2581", "ab"]]}}


embed = lambda dtype, kind: [["model.embed_tokens.weight", dtype, [1024, 64], kind, 0], ["model.norm.weight", dtype, [64], kind, 7]]
CARD = "---\nlicense: [mit, other]\nmodel_name: A name\nbase_model:\n- a/b-7B-v2\n- name: x\n  doi: y\ntags: z\n---\n"
MODELS = {
    "bits-0.1M-chat": {
        "parts": {"model.safetensors": embed("BF16", "bits") + layers(1, 64, 96, 32, "F16", "bits", 900) + [["lm_head.weight", "F32", [1024, 64], "bits", 3]]},
        "files": {"config.json": config(), "generation_config.json": '{"temperature": 0.7, "top_k": 3, "top_p": null}'},
    },
    "Llama3.1-x": {
        "parts": {"model-2.safetensors": layers(2, 64, 96, 32, "BF16", "weights", 5), "model-1.safetensors": embed("BF16", "weights")},
        "files": {"config.json": config(num_hidden_layers=2, head_dim=16, _name_or_path="org/Some-8b-Instruct", rope_theta=500000.0, rope_scaling={
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
            "README.md": CARD, "added_tokens.json": '{"new": 9}',
            "tokenizer_config.json": '{"added_tokens_decoder": {"8": {"content": "\\u2581t", "special": false}, "3": {"content": "<c>", "special": true}}, "add_bos_token": true, "bos_token": "<s>"}'},
    },
    "Fallback-1M": {
        "parts": {"model.safetensors": [["model.norm.weight", "F32", [64], "weights", 1]]},
        "files": {"config.json": config(architectures=["MistralForCausalLM"], model_type="mistral"),
                  "tokenizer.json": json.dumps(fallback()), "tokenizer_config.json": json.dumps({
                      "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": {"__type": "AddedToken", "content": "<pad>"},
                      "extra_special_tokens": ["b"], "tokenizer_class": "LlamaTokenizer", "legacy": False})},
    },
    "Mixtral-11x7B": {  # the experts of a layer are in two files, and 10 comes before 2 by name
        "parts": {"model-1.safetensors": embed("F16", "weights") + experts(0, 11, 64, 32, "BF16", "bits", 300)[:20] + experts(
                      1, 11, 64, 32, "F32", "weights", 600)[30:],
                  "model-2.safetensors": experts(0, 11, 64, 32, "BF16", "bits", 300)[20:] + experts(
                      1, 11, 64, 32, "F32", "weights", 600)[:30]},
        "files": {"config.json": config(
            architectures=["MixtralForCausalLM"], model_type="mixtral", num_hidden_layers=2, num_local_experts=11, num_experts_per_tok=2,
            router_aux_loss_coef=0.02, output_router_logits=False, sliding_window=None, rope_theta=1e6,
            id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0})},
    },
}


def dump(v, indent=0):
    """JSON with a line for each tensor."""
    if isinstance(v, dict) or isinstance(v, list) and v and isinstance(v[0], list) and isinstance(v[0][0], str):
        parts = [f"{json.dumps(k)}: {dump(x, indent + 1)}" for k, x in v.items()] if isinstance(v, dict) else [
            dump(x, indent + 1) for x in v]
        a, b = "{}" if isinstance(v, dict) else "[]"
        return a + "\n" + ",\n".join(" " * (indent + 1) + x for x in parts) + "\n" + " " * indent + b
    return json.dumps(v)


out = {}
with tempfile.TemporaryDirectory() as tmp:
    for name, m in MODELS.items():
        folder = os.path.join(tmp, name)
        os.makedirs(folder)
        m["binary"] = {} if "tokenizer.json" in m["files"] else {"tokenizer.model": pieces()}
        for part, tensors in m["parts"].items():
            save_file(reference.source(tensors), os.path.join(folder, part))
        for f, text in m["files"].items():
            converted.write(folder, f, text)
        for f, b in m["binary"].items():
            converted.write(folder, f, base64.b64decode(b))
        m["sums"] = {}
        for kind in "f32", "f16", "bf16":
            to = os.path.join(tmp, "out.gguf")
            converted.convert(folder, kind, to)
            b = open(to, "rb").read()
            m["sums"][kind] = [len(b), hashlib.sha256(b).hexdigest()]
        out[name] = m
print(dump(out))
