"""quants.py DIR [--hidden N] [--layers N] [--steps N] [--minilm FOLDER] [--only KIND,...]: writes one model as people have it.

Trains a small Llama (or takes MiniLM's weights from FOLDER) and writes its folder of seven: safetensors in the layout of
transformers; GGUF in BF16 (MiniLM: F16) and quantised by ggml, the mixes with an importance matrix; FP8. And each other
format as a file of one type. But for MXFP4 and the keys that name an importance matrix, the quantised GGUF is byte for byte what
llama-quantize writes. Prints a line of JSON a file, the base first:

    path         below DIR
    kind         HF, BF16, F16; a format of ggml or a mix of them (Q4_K_M); FP8 (a scale a row, as compressed-tensors),
                 FP8-tensor, FP8-reciprocal (a tensor, as AutoFP8), FP8-block (128 by 128, as DeepSeek); or what
                 coded.py makes
    importance   quantised with an importance matrix
    fused        by the library with fused multiplications and additions
    seven        one of the folder of seven
"""
import argparse
import glob
import json
import os

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file

import coded
import ggml

MAX = 448  # of float8_e4m3fn


def library_text():
    """Text that every Python has: its library."""
    for path in sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "*.py")))[:60]:
        with open(path, "rb") as f:
            yield f.read()


class Importance:
    """What llama-imatrix computes: for each linear layer the mean square of each of its inputs."""

    def __init__(self, model):
        self.sums, self.counts = {}, {}
        self.hooks = [m.register_forward_hook(self.hook(name)) for name, m in model.named_modules()
                      if isinstance(m, torch.nn.Linear)]

    def hook(self, name):
        def see(_module, inputs, _output):
            x = inputs[0].detach().float().reshape(-1, inputs[0].shape[-1])
            self.sums[name] = self.sums.get(name, 0) + (x * x).sum(0)
            self.counts[name] = self.counts.get(name, 0) + len(x)
        return see

    def done(self):
        for hook in self.hooks:
            hook.remove()
        return {name + ".weight": (s / self.counts[name]).numpy() for name, s in self.sums.items()}


class Llama:
    """A Llama trained on that text, with a token for each of the most frequent pairs of bytes."""

    name, arch, half = "tiny-llama", gguf.MODEL_ARCH.LLAMA, "BF16"
    heads, kv_heads, vocab, context = 8, 4, 2048, 256

    def __init__(self, hidden, layers, steps):
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(0)
        self.hidden, self.layers, self.deep = hidden, layers, -(-hidden * 5 // 2 // 256) * 256
        config = LlamaConfig(
            vocab_size=self.vocab, hidden_size=hidden, intermediate_size=self.deep, num_hidden_layers=layers,
            num_attention_heads=self.heads, num_key_value_heads=self.kv_heads, max_position_embeddings=self.context,
            tie_word_embeddings=False, dtype="bfloat16")
        model = LlamaForCausalLM(config).float()
        self.config = config.to_dict() | {"architectures": ["LlamaForCausalLM"]}
        text = np.frombuffer(b"".join(library_text()), np.uint8).astype(np.int64)
        pairs = text[: len(text) // 2 * 2 : 2] * 256 + text[1 : len(text) // 2 * 2 : 2]
        known, counts = np.unique(pairs, return_counts=True)
        known = known[np.argsort(-counts, kind="stable")[: self.vocab - 1]]
        token_of = np.full(65536, self.vocab - 1)
        token_of[known] = np.arange(len(known))
        tokens = torch.from_numpy(token_of[pairs])

        def batch(n):
            return torch.stack([tokens[i : i + 64] for i in torch.randint(0, len(tokens) - 64, (n,))])

        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = 2e-3 * min(1, (step + 1) / 20) * max(0.05, 1 - step / steps)
            b = batch(4)
            model(input_ids=b, labels=b).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
            optimizer.step()
            optimizer.zero_grad()
        importance = Importance(model)
        with torch.no_grad():
            model(input_ids=batch(16))
        self.importance = importance.done()
        self.tensors = {k: v.detach().to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()}

    def converted(self, name, w):
        """As convert_hf_to_gguf has it: the two halves of each head of Q and K interleaved."""
        heads = {"q_proj": self.heads, "k_proj": self.kv_heads}.get(name.split(".")[-2])
        if heads is None:
            return w
        return w.reshape(heads, 2, w.shape[0] // heads // 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)

    def describe(self, writer):
        writer.add_context_length(self.context)
        writer.add_embedding_length(self.hidden)
        writer.add_block_count(self.layers)
        writer.add_feed_forward_length(self.deep)
        writer.add_head_count(self.heads)
        writer.add_head_count_kv(self.kv_heads)
        writer.add_rope_freq_base(10000.0)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_vocab_size(self.vocab)
        writer.add_rope_dimension_count(self.hidden // self.heads)
        writer.add_tokenizer_model("no_vocab")  # beside so few weights, tokens would be too large a part


class MiniLM:
    """all-MiniLM-L6-v2, whose safetensors are F32 and whose GGUF is quantised from F16."""

    name, arch, half = "all-MiniLM-L6-v2", gguf.MODEL_ARCH.BERT, "F16"

    def __init__(self, folder):
        from transformers import AutoTokenizer, BertModel

        with open(os.path.join(folder, "config.json")) as f:
            self.config = json.load(f)
        self.tensors = load_file(os.path.join(folder, "model.safetensors"))
        self.layers = self.config["num_hidden_layers"]
        tokenizer = AutoTokenizer.from_pretrained(folder)
        self.tokens = tokenizer.convert_ids_to_tokens(range(self.config["vocab_size"]))
        model = BertModel.from_pretrained(folder)
        importance = Importance(model)
        texts = [text.decode("utf-8", "replace")[:1000] for text in library_text()][:16]
        with torch.no_grad():
            model(**tokenizer(texts, padding=True, truncation=True, max_length=128, return_tensors="pt"))
        self.importance = importance.done()

    def converted(self, _name, w):
        return w

    def describe(self, writer):
        c = self.config
        writer.add_context_length(c["max_position_embeddings"])
        writer.add_embedding_length(c["hidden_size"])
        writer.add_block_count(self.layers)
        writer.add_feed_forward_length(c["intermediate_size"])
        writer.add_head_count(c["num_attention_heads"])
        writer.add_layer_norm_eps(c["layer_norm_eps"])
        writer.add_causal_attention(False)
        writer.add_pooling_type(gguf.PoolingType.MEAN)
        writer.add_tokenizer_model("bert")
        writer.add_token_type_count(2)
        writer.add_token_list(self.tokens)


def in_gguf(model):
    """{name in GGUF: (name in the base, tensor as the half-precision GGUF has it)}."""
    names = gguf.get_tensor_name_map(model.arch, model.layers)
    out = {}
    for name, w in model.tensors.items():
        to = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if to is None:  # MiniLM's pooler
            continue
        w = model.converted(name, w)
        single = w.ndim < 2 or to.endswith("_norm.weight") or to.startswith(("position_embd", "token_types"))
        out[to] = name, w.float() if single else w.to({"BF16": torch.bfloat16, "F16": torch.float16}[model.half])

    def place(name):  # llama-quantize's order
        part = name.split(".")
        return int(part[1]) if part[0] == "blk" else -1, name

    return {name: out[name] for name in sorted(out, key=place)}


class Folder:
    def __init__(self, root, model, only):
        self.root, self.model, self.only = root, model, only
        self.tensors = in_gguf(model)

    def wants(self, kind):
        return not self.only or kind in self.only

    def path(self, *names):
        p = os.path.join(self.root, *names)
        os.makedirs(os.path.dirname(p), exist_ok=True)
        return p

    def say(self, path, kind, importance=False, fused=False, seven=False):
        print(json.dumps({"path": os.path.relpath(path, self.root), "kind": kind, "importance": importance,
                          "fused": fused, "seven": seven}), flush=True)

    def safetensors(self, suffix, kind, tensors, seven, **config):
        path = self.path(self.model.name + suffix, "model.safetensors")
        with open(self.path(self.model.name + suffix, "config.json"), "w") as f:
            json.dump(self.model.config | config, f, indent=2)
        save_file(tensors, path, metadata={"format": "pt"})
        self.say(path, kind, seven=seven)

    def gguf(self, kind, importance=False, fused=False, seven=False, pure=False):
        """A GGUF file: of the mix that llama-quantize makes, or, pure, each matrix of that type."""
        if not self.wants(kind):
            return
        model = self.model
        whole = kind == model.half
        static = kind == "Q4_K_M" and not importance
        label = kind + "-pure" * pure + "-imatrix" * (importance and not seven) + "-static" * static + "-fused" * fused
        path = self.path(model.name + "-GGUF", f"{model.name}-{label}.gguf")
        matrices = [n for n, (_, w) in self.tensors.items() if not whole and w.dtype != torch.float32]
        kinds = {n: kind for n in matrices}
        if matrices and not pure:
            columns = {n: self.tensors[n][1].shape[1] for n in matrices}
            kinds = ggml.types(matrices, kind, columns, "output.weight" not in self.tensors)
        w = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[model.arch])
        w.add_type("model")
        w.add_name(model.name)
        model.describe(w)
        w.add_quantization_version(gguf.GGML_QUANT_VERSION)
        mix = {"Q3_K": "Q3_K_S", "Q4_K": "Q4_K_S", "Q5_K": "Q5_K_S", "MXFP4": "MXFP4_MOE"}.get(kind, kind)
        w.add_file_type(gguf.LlamaFileType["MOSTLY_" + mix])
        if importance:
            w.add_string("quantize.imatrix.file", "imatrix.gguf")
            w.add_uint32("quantize.imatrix.entries_count", len(model.importance))
        for name, (base, t) in self.tensors.items():
            if name in kinds:
                weights = None
                if importance and name not in ("output.weight", "token_embd.weight"):
                    weights = model.importance.get(base)
                data = ggml.quantise(t.float().numpy(), kinds[name], weights, fused)
                w.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[kinds[name]])
            elif t.dtype == torch.bfloat16:
                w.add_tensor(name, t.contiguous().view(torch.uint8).numpy(), raw_dtype=gguf.GGMLQuantizationType.BF16)
            else:
                w.add_tensor(name, np.ascontiguousarray(t.numpy()))
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        self.say(path, kind, importance, fused, seven)

    def fp8(self, suffix, kind, quantise, scale="weight_scale", seven=False, **config):
        """FP8 of the matrices of all layers; the rest stays as it is."""
        if not self.wants(kind):
            return
        out = {}
        for name, w in self.model.tensors.items():
            if w.ndim == 2 and ".layer" in name:
                q, s = quantise(w)
                out[name], out[name.removesuffix("weight") + scale] = q.contiguous(), s.contiguous()
            else:
                out[name] = w
        self.safetensors(suffix, kind, out, seven, quantization_config=config)


def fp8(x):
    return x.clamp(-MAX, MAX).to(torch.float8_e4m3fn)


def by_row(w):
    s = w.abs().amax(1, keepdim=True) / MAX  # of bfloat16 in bfloat16, as compressed-tensors computes
    return fp8(w / s), s


def by_tensor(w):
    s = (w.abs().amax() / MAX).reshape(1)
    return fp8(w / s), s


def by_reciprocal(w):
    s = MAX / w.abs().amax()
    return fp8(w * s), s.float().reciprocal()


def by_block(w):
    rows, columns = w.shape
    padded = torch.nn.functional.pad(w.float(), (0, -columns % 128, 0, -rows % 128))
    blocks = padded.reshape(padded.shape[0] // 128, 128, -1, 128)
    s = blocks.abs().amax((1, 3), keepdim=True) / MAX
    return fp8(blocks / s).reshape(padded.shape)[:rows, :columns], s[:, 0, :, 0]


parser = argparse.ArgumentParser()
parser.add_argument("dir")
parser.add_argument("--hidden", type=int, default=512)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--minilm")
parser.add_argument("--only", default="")
args = parser.parse_args()

if ggml.library() is None:
    raise SystemExit("no quantisers of llama.cpp here: scripts/setup-ggml builds them")
torch.set_num_threads(1)  # others may want the processors
model = MiniLM(args.minilm) if args.minilm else Llama(args.hidden, args.layers, args.steps)
folder = Folder(args.dir, model, set(filter(None, args.only.split(","))))
folder.safetensors("", "HF", model.tensors, True)
folder.gguf(model.half, seven=True)
folder.gguf("Q8_0", seven=True)
folder.gguf("Q6_K", seven=True)
folder.gguf("Q5_K_M", importance=True, seven=True)
folder.gguf("Q4_K_M", importance=True, seven=True)
folder.fp8("-FP8-dynamic", "FP8", by_row, seven=True, quant_method="compressed-tensors", format="float-quantized")
folder.gguf("Q4_K_M")
folder.fp8("-FP8-tensor", "FP8-tensor", by_tensor, quant_method="compressed-tensors", format="float-quantized")
folder.fp8("-FP8", "FP8-reciprocal", by_reciprocal, quant_method="fp8", activation_scheme="dynamic")
folder.fp8("-FP8-block", "FP8-block", by_block, scale="weight_scale_inv", quant_method="fp8", weight_block_size=[128, 128])
coded.bitsandbytes(folder, args.minilm or os.path.join(args.dir, model.name))
coded.compressed(folder)
if not args.minilm:  # whose rows have no whole blocks of 256
    for kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4", "Q5_K", "Q4_K", "Q3_K", "Q2_K", "IQ4_NL", "IQ4_XS"):
        folder.gguf(kind, pure=True)
    for kind in ("Q6_K", "Q5_K", "Q4_K", "Q3_K", "Q2_K"):
        folder.gguf(kind, pure=True, importance=True)
    if ggml.library(fused=True):
        for kind in ("Q4_0", "Q5_0", "Q4_K"):
            folder.gguf(kind, pure=True, fused=True)
