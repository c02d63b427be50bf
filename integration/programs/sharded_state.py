"""sharded_state.py save ROOT          small models below ROOT/models, as transformers saves them
sharded_state.py check ROOT FOLDER     has vLLM load each and save it as sharded_state below FOLDER, as each rank of a tensor-parallel
                                       group would, and compares that with ROOT/.ckptfs/make/sharded_state, which vLLM then loads

vLLM is that of scripts/setup-vllm: its Python without its compiled parts, which no rank needs that only loads and saves."""
import filecmp
import multiprocessing
import os
import sys
from glob import glob

import torch

cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
sys.path += sorted(glob(os.path.join(cache, "ckptfs/tools/vllm-*")))[-1:]

SIZES = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2, vocab_size=150)
MODELS = {  # class, its config, ranks
    "llama": ("Llama", dict(tie_word_embeddings=False), 2),
    "llama-biases": ("Llama", dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True), 1),
    "mistral": ("Mistral", dict(sliding_window=None, num_key_value_heads=4), 4),
    "qwen2": ("Qwen2", dict(), 4),
    "qwen3": ("Qwen3", dict(head_dim=16, tie_word_embeddings=True), 2),
}


def save(root):
    import transformers

    torch.manual_seed(3)
    for name, (kind, more, _) in MODELS.items():
        config = getattr(transformers, kind + "Config")(**{**SIZES, **more})
        model = getattr(transformers, kind + "ForCausalLM")(config).to(torch.float16 if name == "qwen2" else torch.bfloat16)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn(p.shape))
        model.save_pretrained(os.path.join(root, "models", name), max_shard_size="40KB" if name == "mistral" else "1GB")


def rank(n, ranks, model, out, made, port):
    """Is one rank: saves the model, and loads what was made."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(n), WORLD_SIZE=str(ranks), LOCAL_RANK=str(n))
    from vllm.config import DeviceConfig, LoadConfig, ModelConfig, VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.model_executor.model_loader import get_model_loader
    from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
    from vllm.model_executor.model_loader.utils import initialize_model

    torch.set_num_threads(1)
    config = ModelConfig(model=model, tokenizer=model, enforce_eager=True, skip_tokenizer_init=True)
    all = VllmConfig(model_config=config, device_config=DeviceConfig(device="cpu"))
    with set_current_vllm_config(all):
        init_distributed_environment(ranks, n, f"tcp://127.0.0.1:{port}", n, backend="gloo")
        initialize_model_parallel(ranks)
        torch.set_default_dtype(config.dtype)
        loaded = initialize_model(all)
        get_model_loader(LoadConfig(load_format="safetensors")).load_weights(loaded, config)
        ShardedStateLoader.save_model(loaded, out, max_size=5 * 1024**3)

        all.compilation_config.static_forward_context.clear()
        again = initialize_model(all)
        for p in again.parameters():
            p.data.fill_(7)
        config = ModelConfig(model=made, tokenizer=made, enforce_eager=True, skip_tokenizer_init=True)
        get_model_loader(LoadConfig(load_format="sharded_state")).load_weights(again, config)
        for name, t in loaded.state_dict().items():
            assert torch.equal(again.state_dict()[name], t), (model, n, name)
    # What gloo's threads hold at an interpreter's end is nobody's business here.
    sys.stdout.flush()
    os._exit(0)


def check(root, folder):
    # vLLM keeps what it found out of a model's class, and finds it out in a process of its own, which does not look for
    # vLLM where this one does. What an earlier run kept must not hide that.
    os.environ["VLLM_CACHE_ROOT"] = os.path.join(folder, "cache")
    import vllm.platforms
    from vllm.model_executor.models import registry
    from vllm.platforms.cpu import CpuPlatform

    vllm.platforms._current_platform = CpuPlatform()
    registry._run_in_subprocess = lambda find: find()
    import vllm.model_executor.model_loader.sharded_state_loader  # noqa: F401, before the processes fork

    fork = multiprocessing.get_context("fork")
    for i, (name, (_, _, ranks)) in enumerate(MODELS.items()):
        model, out = os.path.join(root, "models", name), os.path.join(folder, name)
        made = os.path.join(root, ".ckptfs/make/sharded_state", f"tp={ranks}", "models", name)
        os.makedirs(out)
        with open(f"/proc/sys/net/ipv4/ip_local_port_range") as f:
            port = int(f.read().split()[0]) - 1 - (os.getpid() + i) % 2000  # none that the kernel gives out
        all = [fork.Process(target=rank, args=(n, ranks, model, out, made, port)) for n in range(ranks)]
        for p in all:
            p.start()
        for p in all:
            p.join()
            assert p.exitcode == 0, (name, p.exitcode)
        want = sorted(os.listdir(out))
        assert want == [f"model-rank-{n}-part-0.safetensors" for n in range(ranks)], want
        assert sorted(f for f in os.listdir(made) if f.endswith(".safetensors")) == want, os.listdir(made)
        for f in want:
            assert filecmp.cmp(os.path.join(out, f), os.path.join(made, f), shallow=False), (name, f)
        print(name, "is equal for", ranks, "ranks")


{"save": save, "check": check}[sys.argv[1]](*sys.argv[2:])
