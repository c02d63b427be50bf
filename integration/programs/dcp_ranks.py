"""dcp_ranks.py save SEED FOLDER…: a rank for each folder, all of one step of PyTorch's distributed checkpoints, in which each tensor
is sharded over the ranks. dcp_ranks.py check SEED FOLDER…: one process loads each of them whole, and compares."""
import os
import sys
import tempfile
import traceback

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from seeded_tensors import differences, plain

how, seed, *folders = sys.argv[1:]
os.environ["GLOO_SOCKET_IFNAME"] = "lo"


def save(rank, store):
    from torch.distributed.tensor import DeviceMesh, Shard, distribute_tensor
    dist.init_process_group("gloo", store=dist.FileStore(store, len(folders)), rank=rank, world_size=len(folders))
    mesh = DeviceMesh("cpu", list(range(len(folders))))
    model = {k: distribute_tensor(v, mesh, [Shard(0)]) for k, v in plain(int(seed)).items()}
    dcp.save({"model": model, "step": int(seed)}, checkpoint_id=folders[rank])
    dist.destroy_process_group()


def check(folder):
    reader = dcp.FileSystemReader(folder)
    found = reader.read_metadata().state_dict_metadata
    state = {k: torch.empty(m.size, dtype=m.properties.dtype) if hasattr(m, "size") else None for k, m in found.items()}
    dcp.load(state, storage_reader=reader)
    want = {"model." + k: v for k, v in plain(int(seed)).items()}
    bad = differences(want, {k: v for k, v in state.items() if k != "step"})
    if state["step"] != int(seed):
        bad.append(f"step {state['step']}")
    return [f"{folder}: {b}" for b in bad]


if how == "check":
    sys.exit("\n".join(sum(map(check, folders), [])) or 0)
store = tempfile.mktemp()
ranks = []
for rank in range(len(folders)):
    if pid := os.fork():
        ranks.append(pid)
        continue
    try:
        save(rank, store)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
failed = sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in ranks)
os.path.exists(store) and os.remove(store)
sys.exit(f"{failed} ranks failed" if failed else 0)
