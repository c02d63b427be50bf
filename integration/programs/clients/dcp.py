"""PyTorch's distributed checkpoints: a folder of .distcp files and .metadata, each written beside and renamed; async, too."""
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from state import tensors

def setup():
    if not dist.is_initialized():  # async_save wants a group; one of one process, without a network
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


def save(dir, version, size):
    sd = tensors(version, size)
    dcp.save({"model": sd, "step": version}, checkpoint_id=os.path.join(dir, "step"))
    f = dcp.async_save({"model": sd, "step": version}, checkpoint_id=os.path.join(dir, "async"))
    f.result()


def saver(dir, version, size):
    sd = tensors(version, size)
    return lambda: dcp.save({"model": sd, "step": version}, checkpoint_id=os.path.join(dir, "step"))


def read(dir):
    # No tensors to load into: whatever the metadata lists.
    reader = dcp.FileSystemReader(dir)
    found = reader.read_metadata().state_dict_metadata
    sd = {k: torch.empty(m.size, dtype=m.properties.dtype) if hasattr(m, "size") else None for k, m in found.items()}
    dcp.load(sd, storage_reader=reader)
    return sd


def load(dir):
    return read(os.path.join(dir, "step"))


def ways(dir):
    yield "async", read(os.path.join(dir, "async"))
