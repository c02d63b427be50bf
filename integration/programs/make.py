"""make.py SUBCOMMAND[,SUBCOMMAND…] MOUNT [--each]: computed files below .ckptfs/make have the bytes that the libraries
write. With --each they are compared once a line of standard input, which is answered by what differs, as a JSON list.

    save MOUNT        saves models: safetensors, and a torch file that has a view
    cast MOUNT        cast/TYPE/PATH against torch's to(dtype) and save_file
    shard MOUNT       shard/tp=K/rank-R/PATH against slices of models that transformers saved
    soup MOUNT        soup/mean/… and soup/sum/… against torch, soup/slerp/… against mergekit
    merge MOUNT       merge/SCALE/ADAPTER/+/PATH against PEFT's merge_and_unload
    dcp MOUNT         consolidated/FOLDER/model.safetensors against accelerate's merge_fsdp_weights
    zero MOUNT        the same of DeepSpeed's ZeRO, against zero_to_fp32
    copy MOUNT        saves what cast, shard and megatron compute, as programs save it
"""
import gc
import json
import mmap
import os
import random
import sys

if sys.argv[1] == "soup":
    os.environ["ATEN_CPU_CAPABILITY"] = "avx2"  # other vectors sum otherwise

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save, save_file

what, mount = sys.argv[1:3]
make = os.path.join(mount, ".ckptfs/make")
bad = []


def same(path, want):
    """The file reads as these bytes: whole, by stat, mapped, and in any order."""
    path = os.path.join(make, path)
    try:
        with open(path, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            mapped = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
            order = random.Random(1)
            for _ in range(40):
                at = order.randrange(size)
                n = order.randrange(1, 100_000)
                if os.pread(f.fileno(), n, at) != want[at:at + n]:
                    bad.append(f"{path}: pread of {n} at {at}")
                    break
            got = f.read()
            if mapped[:] != want:
                bad.append(f"{path}: mapped bytes differ")
        if size != len(want) or os.stat(path).st_size != size:
            bad.append(f"{path}: {size} bytes, want {len(want)}")
        if got != want:
            at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
            n = sum(a != b for a, b in zip(got, want))
            bad.append(f"{path}: {len(got)} bytes, want {len(want)}; {n} differ from {at} on")
    except OSError as e:
        bad.append(f"{path}: {e}")


def metadata(path):
    with safe_open(path, framework="pt") as f:
        return f.metadata()


def is_none(path, why):
    """There is no such file, and a text beside it says why."""
    path = os.path.join(make, path)
    if os.path.exists(path):
        bad.append(f"{path} is there")
    try:
        text = open(path + ".why").read()
    except OSError as e:
        text = str(e)
    if why not in text:
        bad.append(f"{path}.why says {text!r}, not {why!r}")


def generator(seed):
    return torch.Generator().manual_seed(seed)


def saved():
    """The files that are cast, below the mount."""
    return ["runs/a/1/model.safetensors", "runs/a/1/torch.safetensors", "flat.safetensors", "halves.safetensors"]


def save_models():
    g = generator(1)
    os.makedirs(f"{mount}/runs/a/1", exist_ok=True)
    tensors = {f"layers.{i}.weight": torch.randn(300, 700, generator=g) for i in range(4)}
    tensors |= {"bias": torch.randn(77, generator=g), "steps": torch.arange(10), "mask": torch.tensor([True, False]),
                "scalar": torch.tensor(1e-40), "odd": torch.tensor([float("nan"), float("inf"), -0.0, 1e-8, 65520.0])}
    save_file(tensors, f"{mount}/runs/a/1/model.safetensors", metadata={"format": "pt"})
    torch.save({"w": tensors["layers.0.weight"].t(), "nested": {"b": tensors["bias"]}}, f"{mount}/runs/a/1/torch.pt")
    with open(f"{mount}/runs/a/1/config.json", "w") as f:
        f.write("{}")
    save_file({k: v for k, v in tensors.items() if v.is_floating_point()}, f"{mount}/flat.safetensors")
    doubles = {"double": torch.randn(50_001, generator=g, dtype=torch.float64) * 1e-6}
    halves = {k: v.to(torch.bfloat16 if i % 2 or v.isnan().any() else torch.float16) for i, (k, v) in enumerate(tensors.items())}
    save_file(halves | doubles,
              f"{mount}/halves.safetensors", metadata={"format": "pt"})
    save_file({"z": torch.zeros(3, dtype=torch.complex64)}, f"{mount}/complex.safetensors")
    with open(f"{mount}/broken.safetensors", "wb") as f:
        f.write(b"\xff" * 1000)


TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def cast(path, dtype):
    tensors = load_file(os.path.join(mount, path))
    return save({k: t.to(dtype) if t.is_floating_point() else t for k, t in tensors.items()},
                metadata(os.path.join(mount, path)))


def check_cast():
    for name, dtype in TYPES.items():
        for path in saved():
            same(f"cast/{name}/{path}", cast(path, dtype))
        is_none(f"cast/{name}/complex.safetensors", "C64")
        is_none(f"cast/{name}/broken.safetensors", "header")
        is_none(f"cast/{name}/gone.safetensors", "no such file")
        here = f"{make}/cast/{name}"
        if open(f"{here}/runs/a/1/config.json").read() != "{}" or not os.path.islink(f"{here}/runs/a/1/config.json"):
            bad.append("config.json is no link to itself")
        if not {"flat.safetensors", "halves.safetensors", "runs"} <= set(os.listdir(here)) or \
                {"complex.safetensors", "broken.safetensors"} & set(os.listdir(here)):
            bad.append(f"{here}: {os.listdir(here)}")
        if sorted(os.listdir(here + "/runs/a/1")) != ["config.json", "model.safetensors", "torch.pt", "torch.safetensors"]:
            bad.append(f"{here}/runs/a/1: {os.listdir(here + '/runs/a/1')}")
    for gone in "cast/f8", "cast/bf16/../../../..//gone", "none", "cast/bf16/%2e%2e/x.safetensors":
        if os.path.exists(f"{make}/{gone}"):
            bad.append(f"{gone} is there")
    if "cast/bf16" not in open(f"{make}/README").read():
        bad.append("README does not say what there is")
    for flags in os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC:
        try:
            os.close(os.open(f"{make}/cast/f16/flat.safetensors", flags))
            bad.append(f"opened with flags {flags:o}")
        except OSError:
            pass



def tiny(kind, dtype=torch.bfloat16, seed=0):
    """A small model of transformers, as it is trained from nothing."""
    import transformers as hf
    torch.manual_seed(seed)
    common = dict(hidden_size=128, intermediate_size=352, num_hidden_layers=2, num_attention_heads=8,
                  num_key_value_heads=2, vocab_size=1001)
    config = {"llama": lambda: hf.LlamaConfig(**common), "mistral": lambda: hf.MistralConfig(**common),
              "qwen2": lambda: hf.Qwen2Config(**common),
              "gpt2": lambda: hf.GPT2Config(n_embd=128, n_head=8, n_layer=2, vocab_size=1001)}[kind]()
    return hf.AutoModelForCausalLM.from_config(config).to(dtype)


KINDS = "llama", "mistral", "qwen2", "gpt2"


def save_transformers():
    for kind in KINDS:
        tiny(kind).save_pretrained(f"{mount}/models/{kind}")
    tiny("llama", torch.float32).save_pretrained(f"{mount}/models/parts", max_shard_size="500KB")
    # as huggingface_hub keeps them
    hub = f"{mount}/hub"
    os.makedirs(hub + "/blobs")
    os.makedirs(hub + "/snapshots/1")
    for i, name in enumerate(["config.json", "model.safetensors"]):
        with open(f"{mount}/models/llama/{name}", "rb") as f, open(f"{hub}/blobs/{i}", "wb") as g:
            g.write(f.read())
        os.symlink(f"../../blobs/{i}", f"{hub}/snapshots/1/{name}")
    # without its config, and with tensors that nobody knows
    os.makedirs(f"{mount}/lone")
    with open(f"{mount}/lone/model.safetensors", "wb") as f:
        f.write(open(f"{hub}/blobs/1", "rb").read())
    os.makedirs(f"{mount}/other")
    save_file({"experts.w": torch.zeros(4, 4)}, f"{mount}/other/model.safetensors")
    with open(f"{mount}/other/config.json", "w") as f:
        f.write(open(f"{hub}/blobs/0").read())


def plan_of(kind):
    """How transformers itself cuts a model's weights, for those for which it says so."""
    import transformers as hf
    model = tiny(kind)
    return {k: v for k, v in (model.tp_plan or {}).items()}


def shard(name, t, r, k, heads=2):
    has = lambda *ends: any(e in name for e in ends)
    if has("embed_tokens", "lm_head", "wte"):
        return t.chunk(k)[r]
    if has("k_proj", "v_proj"):
        parts = min(k, heads)
        return t.chunk(parts)[r * parts // k]
    if has("q_proj", "gate_proj", "up_proj", "c_proj.weight"):
        return t.chunk(k)[r]
    if has("o_proj.weight", "down_proj.weight"):
        return t.chunk(k, 1)[r]
    if has("c_attn"):
        return torch.cat([x.chunk(k, -1)[r] for x in t.chunk(3, -1)], -1)
    return t.chunk(k, -1)[r] if has("c_fc") else t


def sharded(path, r, k):
    return save({n: shard(n, t, r, k).contiguous() for n, t in load_file(f"{mount}/{path}").items()},
                metadata(f"{mount}/{path}"))


def check_shard():
    import transformers as hf
    parts = [f"models/parts/{n}" for n in os.listdir(f"{mount}/models/parts") if n.endswith(".safetensors")]
    if len(parts) < 2:
        bad.append(f"the model of parts has {parts}")
    for path in [f"models/{kind}/model.safetensors" for kind in KINDS] + parts + ["hub/snapshots/1/model.safetensors"]:
        for k in 2, 4:
            for r in 0, k - 1:
                same(f"shard/tp={k}/rank-{r}/{path}", sharded(path, r, k))
    is_none("shard/tp=2/rank-0/lone/model.safetensors", "config.json")
    is_none("shard/tp=2/rank-0/other/model.safetensors", "experts.w")
    is_none("shard/tp=3/rank-0/models/llama/model.safetensors", "divi")
    for gone in "tp=2/rank-2", "tp=2/rank-02", "tp=02", "tp=-2", "tp=1", "tp=99999", "tp=2/rank--1", "tp=2/rank-":
        if os.path.exists(f"{make}/shard/{gone}"):
            bad.append(f"{gone} is there")
    if sorted(os.listdir(make + "/shard/tp=4")) != [f"rank-{r}" for r in range(4)]:
        bad.append("tp=4 does not list its ranks")
    # What transformers cuts by its own plan are the same rows and columns.
    cuts = {"colwise": 0, "rowwise": 1}
    model = hf.AutoModelForCausalLM.from_pretrained(f"{mount}/models/llama", dtype="auto")
    mine = load_file(make + "/shard/tp=2/rank-1/models/llama/model.safetensors")
    seen = 0
    for name, t in model.state_dict().items():
        for pattern, style in (model.tp_plan or {}).items():
            if pattern.replace("*", "0") + ".weight" == name and style in cuts:
                seen += 1
                if not torch.equal(t.chunk(2, cuts[style])[1], mine[name]):
                    bad.append(f"{name} is not cut as transformers cuts it, {style}")
    if seen < 7:
        bad.append(f"transformers says of {seen} weights how they are cut: {model.tp_plan}")
    # A folder of casts is a model.
    with torch.no_grad():
        cast = hf.AutoModelForCausalLM.from_pretrained(make + "/cast/f32/models/llama", dtype=torch.float32)
        if cast.dtype != torch.float32 or not torch.equal(cast.lm_head.weight, model.lm_head.weight.float()):
            bad.append("the model of casts has other weights")


def soup(files, weights=None):
    out = {}
    for k, t in files[0].items():
        s = t.float() if weights is None else t.float() * weights[0]
        for i, f in enumerate(files[1:], 1):
            s = s + (f[k].float() if weights is None else f[k].float() * weights[i])
        out[k] = (s / len(files) if weights is None else s).to(t.dtype) if t.is_floating_point() else t
    return save(out, {"format": "pt"})


def between(a, b, t):
    """As mergekit has it on one thread, but that MKL's last bits of sines and arc cosines are replaced by the right ones.
    What mergekit itself has may differ from it by one unit of the last place of few elements."""
    from mergekit.merge_methods.slerp import slerp
    threads, kept, out = torch.get_num_threads(), (torch.acos, torch.sin), []
    torch.set_num_threads(1)
    for acos, sin in kept, [lambda x, f=f: f(x.double()).float() for f in kept]:
        torch.acos, torch.sin = acos, sin
        out.append({k: slerp(torch.tensor([t]), x[None], b[k][None])[0] if x.is_floating_point() else x for k, x in a.items()})
    torch.acos, torch.sin = kept
    torch.set_num_threads(threads)
    for k, x in out[0].items():
        off = (x.view(torch.int16).int() - out[1][k].view(torch.int16).int()).abs() if x.is_floating_point() else torch.zeros(1)
        if off.max() > 1 or off.sum() > off.numel() / 1000:
            bad.append(f"mergekit has {k} otherwise: {off.sum()} of {off.numel()} elements, by up to {off.max()}")
    return save(out[1], {"format": "pt"})


def save_soups():
    for i, dtype in enumerate([torch.bfloat16, torch.float32, torch.float16, torch.float16]):
        os.makedirs(f"{mount}/runs/+/step {i}", exist_ok=True)
        g = generator(i)
        tensors = {f"w{k}": torch.randn(301, 203, generator=g).to(dtype) for k in range(5)} | {"n": torch.tensor([i])}
        if i == 1:
            torch.save(tensors, f"{mount}/runs/+/step {i}/model.pt")
        else:
            save_file(tensors, f"{mount}/runs/+/step {i}/model.safetensors", metadata={"format": "pt"})


def check_soup():
    path = [f"runs/+/step {i}/model.safetensors" for i in range(4)]
    files = [load_file(f"{mount}/{p}") for p in path]
    same(f"soup/mean/{path[0]}/+/{path[1]}/soup.safetensors", soup(files[:2]))
    same(f"soup/mean/{'/+/'.join(path[:3])}/soup.safetensors", soup(files[:3]))
    same(f"soup/mean/{path[2]}/+/{path[2]}/+/{path[0]}/soup.safetensors", soup([files[2], files[2], files[0]]))
    same(f"soup/sum/0.7/{path[2]}/+/-1.25e-1/{path[0]}/soup.safetensors", soup([files[2], files[0]], [0.7, -0.125]))
    is_none(f"soup/mean/{path[0]}/soup.safetensors", "of one file")
    is_none(f"soup/mean/{path[0]}/+/flat.safetensors/soup.safetensors", "tensors")
    same(f"soup/slerp/0.25/{path[2]}/+/{path[3]}/soup.safetensors", between(files[2], files[3], 0.25))
    is_none(f"soup/slerp/0.25/{path[2]}/soup.safetensors", "of one file")
    is_none(f"soup/slerp/0.25/{path[0]}/+/{path[2]}/soup.safetensors", "is of type")
    many = "/+/".join([path[0]] * 16)
    same(f"soup/mean/{many}/soup.safetensors", soup([files[0]] * 16))
    for gone in (f"mean/{many}/+", "sum/nan", "sum/inf", "sum/1e999", "sum/0x1p-2", "sum/-", f"mean/{path[0]}/+/+", "slerp/x", f"slerp/0.5/{path[0]}/+/{path[0]}/+",
                 f"mean/{path[0]}/other.safetensors"):
        if os.path.exists(f"{make}/soup/{gone}"):
            bad.append(f"soup/{gone} is there")
    if os.listdir(f"{make}/soup/mean/{path[0]}/+/{path[1]}") != ["soup.safetensors"]:
        bad.append("the soup is not listed")


ADAPTERS = {"llama": dict(target_modules=["q_proj", "v_proj", "down_proj"], r=8, lora_alpha=24),
            "qwen2": dict(target_modules=["k_proj", "up_proj"], r=64, lora_alpha=16, use_rslora=True),
            "gpt2": dict(target_modules=["c_attn", "c_fc"], r=16, lora_alpha=32, fan_in_fan_out=True),
            "parts": dict(target_modules=["q_proj", "gate_proj", "down_proj"], r=128, lora_alpha=100)}


def load(path):
    import transformers as hf
    return hf.AutoModelForCausalLM.from_pretrained(f"{mount}/{path}", dtype="auto")


def save_adapters():
    import peft
    for kind, settings in ADAPTERS.items():
        model = peft.get_peft_model(load(f"models/{kind}"), peft.LoraConfig(**settings))
        g = generator(7)
        for i, (name, p) in enumerate(model.named_parameters()):
            if "lora_" in name:  # some B are zeros, as they are before training
                p.data = torch.randn(p.shape, generator=g).to(p.dtype) * (0 if "lora_B" in name and i % 5 == 0 else 0.05)
        model.save_pretrained(f"{mount}/adapters/{kind}")
    model.half().save_pretrained(f"{mount}/adapters/half")
    for name, settings in {"dora": dict(target_modules=["q_proj"], use_dora=True), "head": dict(target_modules=["lm_head"])}.items():
        peft.get_peft_model(load("models/llama"), peft.LoraConfig(**settings)).save_pretrained(f"{mount}/adapters/{name}")


def merged(kind, adapter, scale):
    """The state dict after PEFT has merged."""
    import peft
    model = peft.PeftModel.from_pretrained(load(f"models/{kind}"), f"{mount}/adapters/{adapter}")
    if scale != 1:
        for module in model.modules():
            if hasattr(module, "scale_layer"):
                module.scale_layer(scale)
    return model.merge_and_unload().state_dict()


def check_merge():
    import transformers as hf
    for kind, adapter, scale in [("llama", "llama", 1), ("llama", "llama", 0.3), ("llama", "llama", -2.5), ("qwen2", "qwen2", 1),
                                 ("gpt2", "gpt2", 1), ("parts", "parts", 1), ("parts", "half", 0.5)]:
        out = merged(kind, adapter, scale)
        way = f"merge/{scale}/adapters/{adapter}/adapter_model.safetensors/+/models/{kind}"
        for name in os.listdir(f"{mount}/models/{kind}"):
            if name.endswith(".safetensors"):
                path = f"{mount}/models/{kind}/{name}"
                same(f"{way}/{name}", save({k: out[k].contiguous() for k in load_file(path)}, metadata(path)))
    # A folder of what was merged is a model.
    model = hf.AutoModelForCausalLM.from_pretrained(f"{make}/{way}", dtype="auto")
    if not all(torch.equal(t, out[k]) for k, t in model.state_dict().items()):
        bad.append("the merged model has other weights")
    way = "merge/1/adapters"
    is_none(f"{way}/dora/adapter_model.safetensors/+/models/llama/model.safetensors", "use_dora")
    is_none(f"{way}/head/adapter_model.safetensors/+/models/llama/model.safetensors", "which is not merged")
    is_none(f"{way}/llama/adapter_model.safetensors/+/models/gpt2/model.safetensors", "which the file has not")
    is_none(f"merge/1/models/llama/model.safetensors/+/models/llama/model.safetensors", "adapter_config.json")
    for gone in "x", "1/adapters/llama/adapter_model.safetensors/soup.safetensors", "1/adapters/llama/+":
        if os.path.exists(f"{make}/merge/{gone}"):
            bad.append(f"merge/{gone} is there")


def save_ranks():
    """What 3 ranks write of a model in parts, as FSDP does, and of a model with an optimizer and a step."""
    import tempfile
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    store = tempfile.mktemp()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    ranks = []
    for rank in range(3):
        if pid := os.fork():
            ranks.append(pid)
            continue
        try:
            from torch.distributed.tensor import DeviceMesh, Replicate, Shard, distribute_tensor
            torch.set_num_threads(1)
            dist.init_process_group("gloo", store=dist.FileStore(store, 3), rank=rank, world_size=3)
            mesh = DeviceMesh("cpu", [0, 1, 2])
            g = generator(3)
            model = {f"layers.{i}.w": distribute_tensor(torch.randn(200 + i, 307, generator=g), mesh, [Shard(i % 2)])
                     for i in range(4)}
            model["norm"] = distribute_tensor(torch.randn(33, generator=g).to(torch.bfloat16), mesh, [Replicate()])
            dcp.save({"model": model}, checkpoint_id=f"{mount}/runs/f/checkpoint-1/pytorch_model_fsdp_0")
            dcp.save(model, checkpoint_id=f"{mount}/runs/f/flat")
            dcp.save({"model": model, "optim": {"state": {0: {"m": model["layers.1.w"]}}}, "step": 5},
                     checkpoint_id=f"{mount}/runs/f/all")
            dist.barrier()
            dist.destroy_process_group()
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    if any([os.waitpid(pid, 0)[1] for pid in ranks]):
        bad.append("a rank failed")
    os.makedirs(f"{mount}/runs/f/torn")
    for name in ".metadata", "__0_0.distcp":
        with open(f"{mount}/runs/f/flat/{name}", "rb") as f:
            write(f"runs/f/torn/{name}", f.read())


def check_dcp():
    import tempfile
    from accelerate.utils.fsdp_utils import merge_fsdp_weights
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.format_utils import _EmptyStateDictLoadPlanner, _load_state_dict
    for path in "runs/f/checkpoint-1/pytorch_model_fsdp_0", "runs/f/flat":
        with tempfile.TemporaryDirectory() as d:
            merge_fsdp_weights(f"{mount}/{path}", d, safe_serialization=True)
            with open(f"{d}/model.safetensors", "rb") as f:
                same(f"consolidated/{path}/model.safetensors", f.read())
        if os.listdir(f"{make}/consolidated/{path}") != ["model.safetensors"]:
            bad.append(f"{path} lists {os.listdir(f'{make}/consolidated/{path}')}")
    sd = {}
    _load_state_dict(sd, dcp.FileSystemReader(f"{mount}/runs/f/all"), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    want = {"model." + k: t for k, t in sd["model"].items()} | {"optim.state.0.m": sd["optim"]["state"]["0"]["m"]}
    same("consolidated/runs/f/all/model.safetensors", save(want, {"format": "pt"}))
    is_none("consolidated/runs/f/torn/model.safetensors", "1 of the 3 files")
    is_none("consolidated/runs/f/model.safetensors", ".metadata")
    for name in "config.json", "model.safetensors":
        if not os.path.samefile(f"{make}/consolidated/runs/a/1/{name}", f"{mount}/runs/a/1/{name}"):
            bad.append(f"{name} is no link to itself")


def save_zero():
    """What ranks of DeepSpeed wrote in stages 1 to 3: formats/testdata/zero.py."""
    import shutil
    shutil.copytree(os.path.join(os.path.dirname(__file__), "../../formats/testdata/zero"), f"{mount}/runs/zero")
    for name in (parts := sorted(os.listdir(f"{mount}/runs/zero/stage3"))):
        with open(f"{mount}/runs/zero/stage3/{name}", "rb") as f:
            data = f.read()
        for folder in "torn", "bad":
            os.makedirs(f"{mount}/runs/{folder}", exist_ok=True)
            if name != parts[0]:
                write(f"runs/{folder}/{name}", data)
            elif folder == "bad":
                write(f"runs/bad/{name}", b"no zip")


def check_zero():
    import contextlib
    os.environ |= {"DS_ACCELERATOR": "cpu", "DEEPSPEED_LOG_LEVEL": "error"}
    with contextlib.redirect_stdout(sys.stderr):
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
        for stage in "stage1", "stage2", "stage3":
            want = get_fp32_state_dict_from_zero_checkpoint(f"{mount}/runs/zero", stage)
            want = {k: (t.float() if t.is_floating_point() else t).clone() for k, t in want.items()}
            same(f"consolidated/runs/zero/{stage}/model.safetensors", save(want, {"format": "pt"}))
            if (listed := os.listdir(f"{make}/consolidated/runs/zero/{stage}")) != ["model.safetensors"]:
                bad.append(f"{stage} lists {listed}")
    is_none("consolidated/runs/torn/model.safetensors", "1 of the 2 files")
    is_none("consolidated/runs/bad/model.safetensors", "not of this format")


def save_copies():
    """Saves what make computes, as programs save it: a model, and beside it its casts, slices, and Megatron-LM's ranks."""
    import transformers as hf
    config = hf.LlamaConfig(hidden_size=512, intermediate_size=1376, num_hidden_layers=4, num_attention_heads=8,
                            num_key_value_heads=4, vocab_size=4000)
    hf.AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(f"{mount}/models/copied")
    path = "models/copied/model.safetensors"
    ranks = []
    for r in range(2):  # mcore.py compares them with what Megatron-core saves
        with open(f"{make}/megatron/tp=2/models/copied/release/mp_rank_{r:02d}/model_optim_rng.pt", "rb") as f:
            ranks.append(f.read())
    for r, b in enumerate(ranks):
        write(f"models/copied/mp_rank_{r:02d}.pt", b)
    for kind in "f32", "f16":
        write(f"models/copied/{kind}.safetensors", b := cast(path, TYPES[kind]))
        same(f"cast/{kind}/{path}", b)
    for r in range(2):
        b = save({n: shard(n, t, r, 2, 4).contiguous() for n, t in load_file(f"{mount}/{path}").items()}, {"format": "pt"})
        write(f"models/copied/rank-{r}.safetensors", b)
        same(f"shard/tp=2/rank-{r}/{path}", b)


def write(path, data):
    with open(f"{mount}/{path}", "wb") as f:
        f.write(data)


def save_all():
    for one in save_models, save_transformers, save_soups, save_ranks, save_adapters, save_zero:
        one()


def run():
    for one in what.split(","):
        {"save": save_all, "cast": check_cast, "shard": check_shard, "soup": check_soup, "merge": check_merge, "dcp": check_dcp,
         "zero": check_zero, "copy": save_copies}[one]()


if sys.argv[3:] == ["--each"]:
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print
    for _ in sys.stdin:
        run()
        gc.collect()  # nothing of the mount is open when it is unmounted
        os.write(answers, (json.dumps(bad) + "\n").encode())
        bad.clear()
    sys.exit()
run()
sys.exit("\n".join(bad) or 0)
