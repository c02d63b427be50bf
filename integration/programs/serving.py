"""serving.py: loads a model as inference servers do.

    serving.py [list]               prints the patterns, as a JSON list
    serving.py make DIR BYTES       saves a Llama of random weights: DIR/model, shards of safetensors in bfloat16, and
                                    DIR/model.gguf, another one in float16. Prints the digest of DIR/model
    serving.py PATTERN [RANK]       prints "ready" when all is imported, or what is missing. Then it reads a command a
                                    line and answers a JSON object a line:
        load DIR                    {"bytes"}: every tensor is copied to memory, or where the library does that itself,
                                    each of its pages is touched
        drop                        {}: what the last load held is given back
        check DIR                   {"digest"}: of the names and bytes of all tensors that the pattern loads; of the
                                    logits where a library shows no tensors

The code is this project's own. What it does as whom, and where that was read:

    transformers     from_pretrained(device_map="cpu") of transformers: views of mapped shards
    safe_open        tensor by tensor through the safetensors library, copied out: vLLM's and SGLang's default
                     (safetensors_weights_iterator in model_loader/weight_utils.py; SGLang 0.5.23, vLLM
                     0.33)
    runai            SafetensorsStreamer of runai-model-streamer: threads that read into one buffer
    fastsafetensors  SafeTensorsFileLoader of fastsafetensors without GPU Direct: threads that read blocks of 16 MiB
    llama_mmap, llama_read, llama_direct
                     llama.cpp as llama-cpp-python 0.3.36 has it: MAP_POPULATE; fread; O_DIRECT (src/llama-mmap.cpp)
    mmap             the shards mapped, copied in the order of the file
    columns          as rank RANK of 4 by tensor parallelism: of each matrix its rows or, of o_proj and down_proj, its
                     columns, by slices of the mapping (get_slice in vLLM's sharded loaders and in transformers)
    threads          32 threads that copy from lazy views, in no order (transformers' core_model_loading.py has such a
                     pool, of up to 4 in 5.23; SGLang has 8 threads, one a shard)
    prefetch         mmap, while 4 threads read the shards in blocks of 16 MiB, one each
                     (_prefetch_all_checkpoints in SGLang 0.5.23; vLLM 0.33's strategy "prefetch")
    whole            each shard by one read() of all of it (SGLang's disable_mmap; vLLM 0.33's strategy "eager")
    direct           O_DIRECT, one aligned read a tensor (read_aligned_chunk in llama.cpp's src/llama-mmap.cpp)
"""
import gc
import hashlib
import json
import mmap
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from glob import glob

import numpy as np

cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
sys.path += sorted(glob(os.path.join(cache, "ckptfs/tools/servers-*")))[-1:]  # as scripts/setup-servers installs them

RANKS = 4
PAGE = 4096
rank = 0


def shards(dir):
    return sorted(glob(os.path.join(dir, "model", "*.safetensors")))


def header(path):
    """[(name, shape, bytes of an element, begin, end)] in the order of the file; offsets are those in the file."""
    with open(path, "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        found = json.loads(f.read(n))
    found.pop("__metadata__", None)
    size = {"BF16": 2, "F16": 2, "F32": 4}
    return sorted(((name, t["shape"], size[t["dtype"]], 8 + n + t["data_offsets"][0], 8 + n + t["data_offsets"][1])
                   for name, t in found.items()), key=lambda t: t[3])


def views(path):
    """(name, lazy view of its bytes, a row of the matrix each) in the order of the file."""
    data = np.memmap(path, np.uint8, "r")
    for name, shape, size, begin, end in header(path):
        yield name, data[begin:end].reshape(shape[0], -1)


def mapped(dir, take):
    for path in shards(dir):
        for name, view in views(path):
            take(name, view)


def columns(dir, take):
    for path in shards(dir):
        for name, view in views(path):
            rows, width = view.shape
            if ".o_proj." in name or ".down_proj." in name:
                view = view[:, width // RANKS * rank:width // RANKS * (rank + 1)]
            elif width > 4:
                view = view[rows // RANKS * rank:rows // RANKS * (rank + 1)]
            take(name, view)


def threads(dir, take):
    with ThreadPoolExecutor(32) as pool:
        for future in [pool.submit(take, name, view) for path in shards(dir) for name, view in views(path)]:
            future.result()


def prefetch(dir, take):
    ended = threading.Event()

    def read(path):
        with open(path, "rb") as f:
            while not ended.is_set() and f.read(16 << 20):
                pass

    with ThreadPoolExecutor(4) as pool:
        ahead = [pool.submit(read, path) for path in shards(dir)]
        mapped(dir, take)
        ended.set()
        for future in ahead:
            future.result()


def whole(dir, take):
    for path in shards(dir):
        with open(path, "rb") as f:
            data = np.frombuffer(f.read(), np.uint8)
        for name, shape, size, begin, end in header(path):
            take(name, data[begin:end].reshape(shape[0], -1))


def direct(dir, take):
    for path in shards(dir):
        tensors = header(path)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            for name, shape, size, begin, end in tensors:
                first, last = begin // PAGE * PAGE, -(-end // PAGE) * PAGE
                buffer = mmap.mmap(-1, last - first)
                got = 0
                while got < end - first:
                    n = os.preadv(fd, [memoryview(buffer)[got:]], first + got)
                    assert n > 0, f"{path}: ends at {first + got}, not at {end}"
                    got += n
                take(name, np.frombuffer(buffer, np.uint8)[begin - first:end - first].reshape(shape[0], -1))
        finally:
            os.close(fd)


def bytes_of(tensor):
    import torch
    return tensor.detach().contiguous().view(torch.uint8).reshape(tensor.shape[0], -1).numpy()


def import_safe_open():
    import torch  # noqa: F401
    import safetensors  # noqa: F401


def safe_open(dir, take):
    import safetensors
    for path in shards(dir):
        with safetensors.safe_open(path, framework="pt", device="cpu") as f:
            for name in f.keys():
                take(name, bytes_of(f.get_tensor(name)))


def import_transformers():
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    from transformers import LlamaForCausalLM  # noqa: F401


def from_pretrained(dir, take):
    from transformers import LlamaForCausalLM
    model = LlamaForCausalLM.from_pretrained(os.path.join(dir, "model"), device_map="cpu", dtype="auto",
                                             local_files_only=True)
    for name, tensor in model.state_dict().items():
        take(name, bytes_of(tensor))


def import_runai():
    import torch  # noqa: F401
    import runai_model_streamer  # noqa: F401


def runai(dir, take):
    from runai_model_streamer import SafetensorsStreamer
    with SafetensorsStreamer() as streamer:
        streamer.stream_files(shards(dir), device="cpu")
        for name, tensor in streamer.get_tensors():
            take(name, bytes_of(tensor))


def import_fastsafetensors():
    import torch  # noqa: F401
    import fastsafetensors  # noqa: F401


def fastsafetensors_(dir, take):
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup
    for path in shards(dir):
        loader = SafeTensorsFileLoader(SingleGroup(), "cpu", nogds=True)
        try:
            loader.add_filenames({0: [path]})
            files = loader.copy_files_to_device()
            for name in files.key_to_rank_lidx:
                take(name, bytes_of(files.get_tensor(name)))
            files.close()
        finally:
            loader.close()


llama = None


def import_llama():
    """The bindings of llama-cpp-python without the rest of the package, which needs more packages."""
    global llama
    import types
    found = [p for p in sys.path if os.path.exists(os.path.join(p, "llama_cpp", "lib", "libllama.so"))]
    if not found:
        raise ImportError("no llama.cpp (scripts/setup-servers builds it)")
    package = types.ModuleType("llama_cpp")
    package.__path__ = [os.path.join(found[0], "llama_cpp")]
    sys.modules["llama_cpp"] = package
    import llama_cpp.llama_cpp as llama
    quiet = llama.llama_log_callback(lambda level, text, data: None)
    import_llama.quiet = quiet  # libllama calls it as long as the process lives
    llama.llama_log_set(quiet, None)
    llama.llama_backend_init()


def by_llama(mode):
    def load(dir, take):
        params = llama.llama_model_default_params()
        params.load_mode = getattr(llama, "LLAMA_LOAD_MODE_" + mode)
        path = os.path.join(dir, "model.gguf")
        model = llama.llama_model_load_from_file(path.encode(), params)
        if not model:
            raise OSError(f"llama.cpp does not load {path}")
        try:
            if take is check:
                take("logits", logits(model))
        finally:
            llama.llama_model_free(model)
        return os.path.getsize(path)
    return load


def logits(model):
    """Of the last of eight tokens, as bytes."""
    import ctypes
    params = llama.llama_context_default_params()
    params.n_ctx, params.n_threads, params.n_threads_batch = 64, 1, 1
    context = llama.llama_init_from_model(model, params)
    try:
        tokens = (llama.llama_token * 8)(*range(8))
        if llama.llama_decode(context, llama.llama_batch_get_one(tokens, 8)) != 0:
            raise OSError("llama.cpp does not decode")
        n = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
        return np.array(ctypes.cast(llama.llama_get_logits(context), ctypes.POINTER(ctypes.c_float * n)).contents
                        ).view(np.uint8).reshape(1, -1)
    finally:
        llama.llama_free(context)


# Pattern: what it imports; what loads; whether each tensor lies in memory of its own already.
PATTERNS = {
    "transformers": (import_transformers, from_pretrained, True),
    "safe_open": (import_safe_open, safe_open, False),
    "runai": (import_runai, runai, True),
    "fastsafetensors": (import_fastsafetensors, fastsafetensors_, True),
    "llama_mmap": (import_llama, by_llama("MMAP"), True),
    "llama_read": (import_llama, by_llama("NONE"), True),
    "llama_direct": (import_llama, by_llama("DIRECT_IO"), True),
    "mmap": (None, mapped, False),
    "columns": (None, columns, False),
    "threads": (None, threads, False),
    "prefetch": (None, prefetch, False),
    "whole": (None, whole, True),
    "direct": (None, direct, False),
}

own = threading.local()
loaded = 0
lock = threading.Lock()


def copy(name, view):
    """Into a buffer of the thread: the memory of a real server's weights would not fit eight times."""
    global loaded
    if getattr(own, "buffer", None) is None or own.buffer.size < view.size:
        own.buffer = np.empty(view.size, np.uint8)
    np.copyto(own.buffer[:view.size].reshape(view.shape), view)
    with lock:
        loaded += view.size


def touch(name, view):
    global loaded
    view.reshape(-1)[::PAGE].max(initial=0)
    loaded += view.size


found = {}


def check(name, view):
    digest = hashlib.sha256(np.ascontiguousarray(view)).hexdigest()
    with lock:
        found[name] = digest


def digest():
    return hashlib.sha256("\n".join(f"{k} {v}" for k, v in sorted(found.items())).encode()).hexdigest()


def make(dir, size):
    import gguf
    import_transformers()
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    width, vocab = 512 if size < 256 << 20 else 1024 if size < 1 << 30 else 2048, 1024
    layers = max(2, round(size / (32 * width * width)))
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=vocab, hidden_size=width, intermediate_size=4 * width,
                                         num_hidden_layers=layers, num_attention_heads=8, num_key_value_heads=8,
                                         max_position_embeddings=64, tie_word_embeddings=False))
    model.save_pretrained(os.path.join(dir, "model"), max_shard_size=max(size // 4, 100_000))
    del model
    torch.set_default_dtype(torch.float32)
    w = gguf.GGUFWriter(os.path.join(dir, "model.gguf"), "llama")
    w.add_context_length(64)
    w.add_embedding_length(width)
    w.add_block_count(layers)
    w.add_feed_forward_length(4 * width)
    w.add_head_count(8)
    w.add_head_count_kv(8)
    w.add_rope_dimension_count(width // 8)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_vocab_size(vocab)
    w.add_tokenizer_model("no_vocab")
    g = np.random.default_rng(1)

    def add(name, rows, columns):
        values = g.standard_normal((rows, columns), np.float32)
        values *= 0.02
        w.add_tensor(name + ".weight", values.astype(np.float16))

    ones = np.ones(width, np.float32)
    add("token_embd", vocab, width)
    add("output", vocab, width)
    w.add_tensor("output_norm.weight", ones)
    for i in range(layers):
        for name, rows, cols in (("attn_q", width, width), ("attn_k", width, width), ("attn_v", width, width),
                                 ("attn_output", width, width), ("ffn_gate", 4 * width, width),
                                 ("ffn_up", 4 * width, width), ("ffn_down", width, 4 * width)):
            add(f"blk.{i}.{name}", rows, cols)
        w.add_tensor(f"blk.{i}.attn_norm.weight", ones)
        w.add_tensor(f"blk.{i}.ffn_norm.weight", ones)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    mapped(dir, check)
    print(digest())


def serve(pattern):
    global loaded
    imports, load, touches = PATTERNS[pattern]
    try:
        if imports:
            imports()
    except (ImportError, OSError) as e:
        print(f"missing: {e}", flush=True)
        return
    if imports and imports is not import_llama:
        import torch
        torch.set_num_threads(1)
    print("ready", flush=True)
    for line in sys.stdin:
        command, _, dir = line.rstrip("\n").partition(" ")
        if command == "load":
            loaded = 0
            itself = load(dir, touch if touches else copy)
            print(json.dumps({"bytes": itself or loaded}), flush=True)
        elif command == "drop":
            gc.collect()
            print("{}", flush=True)
        elif command == "check":
            found.clear()
            load(dir, check)
            print(json.dumps({"digest": digest()}), flush=True)


if sys.argv[1:] in ([], ["list"]):
    print(json.dumps(list(PATTERNS)))
elif sys.argv[1] == "make":
    make(sys.argv[2], int(sys.argv[3]))
else:
    rank = int(sys.argv[2]) % RANKS if len(sys.argv) > 2 else 0
    serve(sys.argv[1])
