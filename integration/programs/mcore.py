"""mcore.py save ROOT              small models below ROOT/models, as transformers saves them
mcore.py check    ROOT FOLDER     has mbridge load each into a model of Megatron-core as each rank of a tensor-parallel group would,
                                  saves that below FOLDER, and compares it with ROOT/.ckptfs/make/megatron, which the model then loads;
                                  saves it below ROOT/megatron, too, as Megatron-LM does, and compares what mbridge makes of it with
                                  ROOT/.ckptfs/make/hf
mcore.py again ROOT               compares ROOT/.ckptfs/make/hf with the models that came first
mcore.py fixture FOLDER           writes the checkpoint of fs/plans/testdata/torch_dist

Megatron-core and mbridge are those of scripts/setup-megatron. Here are no GPU and no TransformerEngine: the model has
Megatron-core's own layers, but for two that have the norm before them within, by TransformerEngine's names."""
import argparse
import filecmp
import multiprocessing
import os
import queue
import shutil
import sys
import warnings
from glob import glob

import torch

cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
sys.path += sorted(glob(os.path.join(cache, "ckptfs/tools/megatron-*.*.*")))[-1:]
warnings.filterwarnings("ignore")  # of what runs on GPUs alone

SIZES = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2, vocab_size=152)
MODELS = {  # class, its config, ranks, of what the vocabulary is padded to be a multiple, type
    "llama": ("Llama", dict(tie_word_embeddings=False), 2, None, torch.bfloat16),
    "llama-whole": ("Llama", dict(num_key_value_heads=8, num_hidden_layers=3), 1, None, torch.float32),
    "llama-padded": ("Llama", dict(vocab_size=149, tie_word_embeddings=True), 4, 128, torch.bfloat16),
    "mistral": ("Mistral", dict(sliding_window=None, num_key_value_heads=4, head_dim=24), 4, None, torch.bfloat16),
    "qwen2": ("Qwen2", dict(vocab_size=150), 2, 64, torch.float16),
    "qwen3": ("Qwen3", dict(head_dim=16, tie_word_embeddings=True), 2, None, torch.bfloat16),
}


def save(root):
    import transformers

    torch.manual_seed(3)
    for name, (kind, more, _, _, dtype) in MODELS.items():
        config = getattr(transformers, kind + "Config")(**{**SIZES, **more})
        model = getattr(transformers, kind + "ForCausalLM")(config).to(dtype)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn(p.shape))
        model.save_pretrained(os.path.join(root, "models", name), max_shard_size="40KB" if name == "mistral" else "1GB")


def prepare():
    """Makes the libraries run where there is no GPU."""
    from megatron.core.dist_checkpointing.strategies import filesystem_async
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear
    from megatron.core.transformer.identity_op import IdentityOp
    from mbridge.core import LLMBridge
    from mbridge.core.bridge import register_model
    from mbridge.models import LLaMABridge

    class Linear(ColumnParallelLinear):
        """TransformerEngine's LayerNormColumnParallelLinear, as far as its parameters go."""

        def __init__(self, input_size, output_size, *, config, **more):
            super().__init__(input_size, output_size, config=config, **more)
            rest = dict(self._parameters)
            self._parameters.clear()
            self.layer_norm_weight = torch.nn.Parameter(torch.ones(input_size, dtype=config.params_dtype))
            self._parameters.update(rest)

    def layers(bridge, vp_stage=None):
        spec = get_gpt_layer_local_spec(normalization="RMSNorm", qk_layernorm=bridge.config.qk_layernorm)
        within = spec.submodules
        within.input_layernorm = within.pre_mlp_layernorm = IdentityOp
        within.self_attention.submodules.linear_qkv = within.mlp.submodules.linear_fc1 = Linear
        within.sharded_state_dict_keys_map = {}
        return spec

    LLMBridge._get_transformer_layer_spec = layers
    register_model("mistral")(LLaMABridge)  # mbridge has no name for it
    filesystem_async._results_queue = queue.Queue()  # of one process: what it saves is not awaited elsewhere
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda: None


def bridged(model, dtype, multiple):
    """Is mbridge of a model, and an empty model of Megatron-core."""
    from mbridge import AutoBridge
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model)
    config.rope_theta = 10000.0  # where transformers 4 has it; it has no rope_scaling
    type(config).__contains__ = lambda self, name: False
    bridge = AutoBridge.from_config(config, dtype=dtype, make_vocab_size_divisible_by=multiple)
    bridge.set_extra_args(use_cpu_initialization=True, sequence_parallel=False)  # torch's norms know none
    empty = bridge._model_provider([])(pre_process=True, post_process=True).to(dtype)
    with torch.no_grad():
        for p in empty.parameters():
            p.fill_(7)
    return bridge, empty


def rank(n, ranks, model, dtype, multiple, out, made, saved, port):
    """Is one rank: saves the model, and loads what was made."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(n), WORLD_SIZE=str(ranks))
    from megatron.core import dist_checkpointing, parallel_state
    from safetensors.torch import save_file

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel(ranks)
    bridge, loaded = bridged(model, dtype, multiple)
    with torch.no_grad():
        bridge.load_weights([loaded], model)
    torch.serialization.set_crc32_options(False)
    at = f"release/mp_rank_{n:02d}/model_optim_rng.pt"
    os.makedirs(os.path.dirname(os.path.join(out, at)))
    torch.save({"model": dict(loaded.state_dict()), "checkpoint_version": 3.0, "iteration": 0}, os.path.join(out, at))

    _, again = bridged(model, dtype, multiple)
    again.load_state_dict(torch.load(os.path.join(made, at), weights_only=True, mmap=n > 0)["model"], strict=True)
    for name, t in loaded.state_dict().items():
        assert t is None or torch.equal(again.state_dict()[name], t), (model, n, name)

    of = bridge.config
    args = argparse.Namespace(group_query_attention=of.num_query_groups < of.num_attention_heads, swiglu=of.gated_linear_unit, **{
        name: getattr(of, name) for name in ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "kv_channels",
                                             "num_query_groups", "normalization", "rotary_interleaved")})
    if not args.group_query_attention:
        args.num_query_groups = 1  # as Megatron-LM says it
    dist_checkpointing.save({"iteration": 1, "args": args, **loaded.sharded_state_dict()}, os.path.join(saved, "iter_0000001"))
    first = os.path.join(saved, "iter_0000002", f"mp_rank_{n:02d}")  # with --ckpt-format torch
    os.makedirs(first)
    torch.serialization.set_crc32_options(True)
    torch.save({"args": args, "checkpoint_version": 3.0, "iteration": 2, "model": loaded.state_dict(),
                "optimizer": {"optimizer": {"state": {0: {"exp_avg": torch.zeros(3)}}}, "fp32_from_fp16_params": [[torch.zeros(3)]]},
                "rng_state": [{"torch_rng_state": torch.get_rng_state()}]}, os.path.join(first, "model_optim_rng.pt"))
    exported = {name: t.contiguous() for name, t in bridge.export_weights([again])}
    if n == 0:
        save_file(exported, os.path.join(out, "model.safetensors"), {"format": "pt"})
    # What gloo's threads hold at an interpreter's end is nobody's business here.
    sys.stdout.flush()
    os._exit(0)


def group(target, ranks, i, *of):
    """Runs the processes of a group."""
    fork = multiprocessing.get_context("fork")
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        port = int(f.read().split()[0]) - 1 - (os.getpid() + i) % 2000  # none that the kernel gives out
    all = [fork.Process(target=target, args=(n, ranks, *of, port)) for n in range(ranks)]
    for p in all:
        p.start()
    for p in all:
        p.join()
        assert p.exitcode == 0, (of, p.exitcode)


def check(root, folder):
    prepare()
    for i, (name, (_, _, ranks, multiple, dtype)) in enumerate(MODELS.items()):
        model, out = os.path.join(root, "models", name), os.path.join(folder, name)
        way = f"tp={ranks}" + (f",vocab={multiple}" if multiple else "")
        made = os.path.join(root, ".ckptfs/make/megatron", way, "models", name)
        saved = os.path.join(root, "megatron", name)
        os.makedirs(os.path.join(saved, "iter_0000001"))
        group(rank, ranks, i, model, dtype, multiple, out, made, saved)
        with open(os.path.join(made, "latest_checkpointed_iteration.txt")) as f:
            assert f.read() == "release"
        want = [f"mp_rank_{n:02d}" for n in range(ranks)]
        assert sorted(os.listdir(os.path.join(made, "release"))) == want, os.listdir(made)
        for at in want:
            of = [os.path.join(x, "release", at, "model_optim_rng.pt") for x in (out, made)]
            assert filecmp.cmp(*of, shallow=False), of
        shutil.copytree(os.path.join(made, "release"), os.path.join(saved, "release"))
        shutil.copy(os.path.join(model, "config.json"), saved)
        for at in "iter_0000001", "iter_0000002", "release":
            again = os.path.join(root, ".ckptfs/make/hf/megatron", name, at)
            there = {"config.json", "model.safetensors", *(want if at != "iter_0000001" else [])}
            assert set(os.listdir(again)) == there, os.listdir(again)
            file = os.path.join(again, "model.safetensors")
            assert filecmp.cmp(os.path.join(out, "model.safetensors"), file, shallow=False), file
        print(name, "is equal for", ranks, "ranks, and on the way back")


def again(root):
    from transformers import AutoModelForCausalLM

    for name, (_, _, _, _, dtype) in MODELS.items():
        first = os.path.join(root, "models", name)
        for at in "iter_0000001", "iter_0000002", "release":
            made = os.path.join(root, ".ckptfs/make/hf/megatron", name, at)
            if name != "mistral":  # whose weights are in several files
                assert filecmp.cmp(*[os.path.join(x, "model.safetensors") for x in (first, made)], shallow=False), made
        want, got = (AutoModelForCausalLM.from_pretrained(x, dtype=dtype).state_dict() for x in (first, made))
        assert want.keys() == got.keys() and all(torch.equal(t, got[k]) for k, t in want.items()), name


def fixture(folder):
    import transformers

    prepare()
    torch.manual_seed(3)
    config = transformers.Qwen3Config(hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, head_dim=4, vocab_size=10, tie_word_embeddings=False)
    transformers.Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    group(part, 2, 0, folder)


def part(n, ranks, folder, port):
    """Is one rank: saves the model of a folder there."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(n), WORLD_SIZE=str(ranks))
    from megatron.core import dist_checkpointing, parallel_state

    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel(ranks)
    bridge, loaded = bridged(folder, torch.bfloat16, 4)
    with torch.no_grad():
        bridge.load_weights([loaded], folder)
    os.makedirs(os.path.join(folder, "saved"), exist_ok=True)
    torch.distributed.barrier()
    dist_checkpointing.save({"iteration": 1, **loaded.sharded_state_dict()}, os.path.join(folder, "saved"))
    os._exit(0)


{"save": save, "check": check, "again": again, "fixture": fixture}[sys.argv[1]](*sys.argv[2:])
