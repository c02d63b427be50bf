#!/usr/bin/env python3
"""Write checkpoints of torch.distributed.checkpoint, by two ranks and by one.

    python3 dcp.py [FOLDER]             # needs torch; FOLDER is this one by default

  dcp/two/*          two ranks: tensors sharded along either dimension, unevenly, and one that both have
  dcp/one/*          one rank, the same tensors whole, but "cols" has changed
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.device_mesh import init_device_mesh

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))


def ramp(*shape):
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


def state(change):
    return {"model": {"rows": ramp(5, 40), "cols": ramp(40, 7) + change, "both": ramp(30).to(torch.bfloat16), "scalar": torch.tensor(2.5)},
            "opt": {"step": 3, "state": {"0": {"m": ramp(6, 8)}}}, "extra": {"kept": ramp(3)}}


def rank(i):
    os.environ.update(RANK=str(i), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    s = state(0)
    for part, key, how in ("model", "rows", Shard(0)), ("model", "cols", Shard(1)), ("model", "both", Replicate()):
        s[part][key] = distribute_tensor(s[part][key], mesh, [how])
    s["opt"]["state"]["0"]["m"] = distribute_tensor(s["opt"]["state"]["0"]["m"], mesh, [Shard(0)])
    dcp.save(s, checkpoint_id=os.path.join(OUT, "dcp/two"))
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(rank, nprocs=2)
    dcp.save(state(1), checkpoint_id=os.path.join(OUT, "dcp/one"), no_dist=True)
