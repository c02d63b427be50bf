"""dcp_optimizer.py save MOUNT: five steps of four runs in PyTorch's distributed checkpoints, with the states of AdamW:
runs/mixed in one folder a step, of two ranks; runs/app below one key; runs/fsdp as accelerate has them, a folder for the
weights and one for the optimizer; runs/boxed with weights in an object, which have no names. All are two days old.
dcp_optimizer.py check MOUNT DROPPED WHOLE: of the steps DROPPED (as 1,2,3) the weights load from safetensors, and those
of WHOLE load whole by torch.distributed.checkpoint."""
import os
import sys
import tempfile
import time
import traceback
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.tensor import DeviceMesh, Shard, distribute_tensor

os.environ["GLOO_SOCKET_IFNAME"] = "lo"
RANKS = 2


def trained(step):
    """The states of a model and of its optimizer after some steps of training, flat."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.Linear(96, 33))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for i in range(step):
        torch.manual_seed(i)
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    state = {k: v.detach().clone() for k, v in model.state_dict().items()}
    names = list(state)
    moments = {names[i]: {k: v.clone() for k, v in s.items()} for i, s in optimizer.state_dict()["state"].items()}
    return state, {"state": moments, "param_groups": [{"lr": 1e-3, "params": names}]}


def save_mixed(mount, rank, step):
    mesh = DeviceMesh("cpu", list(range(RANKS)))
    model, optimizer = trained(step)

    def spread(v):
        return distribute_tensor(v, mesh, [Shard(0)]) if v.dim() else v
    state = {"model": {k: spread(v) for k, v in model.items()}, "step": step,
             "optimizer": {"state": {k: {n: spread(v) for n, v in s.items()} for k, s in optimizer["state"].items()},
                           "param_groups": optimizer["param_groups"]}}
    dcp.save(state, checkpoint_id=f"{mount}/runs/mixed/{step}")


def save_ranks(mount, rank, store):
    dist.init_process_group("gloo", store=dist.FileStore(store, RANKS), rank=rank, world_size=RANKS)
    for step in range(1, 6):
        save_mixed(mount, rank, step)
    dist.destroy_process_group()


def save(mount):
    store = tempfile.mktemp()
    ranks = []
    for rank in range(RANKS):
        if pid := os.fork():
            ranks.append(pid)
            continue
        try:
            save_ranks(mount, rank, store)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    failed = sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in ranks)
    if os.path.exists(store):
        os.remove(store)
    if failed:
        sys.exit(f"{failed} ranks failed")
    for step in range(1, 6):
        model, optimizer = trained(step)
        dcp.save({"app": {"model": model, "optim": optimizer}}, checkpoint_id=f"{mount}/runs/app/{step}", no_dist=True)
        dcp.save({"model": model}, checkpoint_id=f"{mount}/runs/fsdp/{step}/pytorch_model_fsdp_0", no_dist=True)
        dcp.save({"optimizer": optimizer}, checkpoint_id=f"{mount}/runs/fsdp/{step}/optimizer_0", no_dist=True)
        boxed = SimpleNamespace(weights=torch.zeros(600, 600))
        dcp.save({"model": boxed, "optimizer": optimizer}, checkpoint_id=f"{mount}/runs/boxed/{step}", no_dist=True)
    then = time.time() - 2 * 24 * 3600
    for folder, folders, files in os.walk(f"{mount}/runs", topdown=False):
        for name in files:
            os.utime(os.path.join(folder, name), (then, then))


def same(what, want, got):
    if set(want) != set(got):
        sys.exit(f"{what}: {sorted(got)}")
    for name, w in want.items():
        if w.dtype != got[name].dtype or not torch.equal(w, got[name]):
            sys.exit(f"{what}: {name} differs")


def loaded(folder):
    reader = dcp.FileSystemReader(folder)
    state = {k: torch.empty(m.size, dtype=m.properties.dtype) if hasattr(m, "size") else None
             for k, m in reader.read_metadata().state_dict_metadata.items()}
    dcp.load(state, storage_reader=reader, no_dist=True)
    return {k: v for k, v in state.items() if isinstance(v, torch.Tensor)}


def check(mount, dropped, whole):
    for step in dropped:
        model, _ = trained(step)
        names = {"model." + k: v for k, v in model.items()}
        same(f"mixed {step}", names, load_file(f"{mount}/runs/mixed/{step}/model.weights.safetensors"))
        same(f"app {step}", names, load_file(f"{mount}/runs/app/{step}/model.weights.safetensors"))
        same(f"fsdp {step}", names, loaded(f"{mount}/runs/fsdp/{step}/pytorch_model_fsdp_0"))
    for step in whole:
        model, optimizer = trained(step)
        moments = {f"state.{k}.{n}": v for k, s in optimizer["state"].items() for n, v in s.items()}
        weights = {"model." + k: v for k, v in model.items()}
        both = weights | {"optimizer." + k: v for k, v in moments.items()}
        same(f"mixed {step}", both, loaded(f"{mount}/runs/mixed/{step}"))
        under = {"app." + k: v for k, v in (weights | {"optim." + k: v for k, v in moments.items()}).items()}
        same(f"app {step}", under, loaded(f"{mount}/runs/app/{step}"))
        same(f"fsdp {step}", weights, loaded(f"{mount}/runs/fsdp/{step}/pytorch_model_fsdp_0"))
        same(f"fsdp {step}", {"optimizer." + k: v for k, v in moments.items()}, loaded(f"{mount}/runs/fsdp/{step}/optimizer_0"))


if sys.argv[1] == "save":
    save(sys.argv[2])
else:
    check(sys.argv[2], *([int(s) for s in steps.split(",") if s] for steps in sys.argv[3:5]))
