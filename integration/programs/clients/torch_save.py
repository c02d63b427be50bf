"""torch.save and torch.load: zip and legacy, mapped, weights only; below runs/, so that views appear on the mount."""
import os

import torch
from state import tensors

EXACT = True
INEXACT = ("legacy.pth",)  # the old format names storages by their addresses


def path(dir, name):
    folder = os.path.join(dir, "out")
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, name)


def save(dir, version, size):
    sd = tensors(version, size)
    torch.save(sd, path(dir, "model.pt"))
    torch.save({"model": sd, "step": version, "args": {"lr": 0.1}}, path(dir, "train.ckpt"))
    torch.save(sd, path(dir, "legacy.pth"), _use_new_zipfile_serialization=False)


def saver(dir, version, size):
    sd, to = tensors(version, size), path(dir, "model.pt")
    return lambda: torch.save(sd, to)


def load(dir):
    return torch.load(path(dir, "model.pt"))


def ways(dir):
    yield "mmap", torch.load(path(dir, "model.pt"), mmap=True)
    yield "weights only", torch.load(path(dir, "train.ckpt"), weights_only=True)
    yield "unpickled", torch.load(path(dir, "train.ckpt"), weights_only=False)
    yield "legacy", torch.load(path(dir, "legacy.pth"))
    with open(path(dir, "model.pt"), "rb") as f:
        yield "from a stream", torch.load(f)


def change(dir, version, size):
    """As a training loop keeps its best: written beside, then renamed over it."""
    torch.save(tensors(version, size), path(dir, "model.pt.tmp"))
    os.replace(path(dir, "model.pt.tmp"), path(dir, "model.pt"))
    sd = torch.load(path(dir, "train.ckpt"), mmap=True)  # mapped while its successor is written
    sd["step"] = version
    torch.save(sd, path(dir, "train.ckpt.tmp"))
    del sd
    os.replace(path(dir, "train.ckpt.tmp"), path(dir, "train.ckpt"))
