"""A server that follows a training run by files alone.

    motion.py PACKAGE PROGRAM RUN WIDTH STEPS

A trainer in another process saves a model in bfloat16, whose learning rate is that of reinforcement learning, as
runs/…/N/model.safetensors. The server has the first step in memory and applies the patch of each next one when it is
complete. Prints for each, as JSON: the seconds from the trainer's close to the server's weights being those of the step,
the bytes of the patch, the bytes of the model, and the seconds of a full reload.
"""
import json
import multiprocessing
import os
import sys
import time

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, sys.argv[1])
import ckptfs  # noqa: E402

program, run, width, steps = sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])


def shapes():
    yield "model.embed_tokens.weight", (8 * width, width)
    for i in range(4):
        for name in ("q", "k", "v", "o"):
            yield f"model.layers.{i}.self_attn.{name}_proj.weight", (width, width)
        yield f"model.layers.{i}.mlp.up_proj.weight", (4 * width, width)
        yield f"model.layers.{i}.mlp.down_proj.weight", (width, 4 * width)
        yield f"model.layers.{i}.input_layernorm.weight", (width,)


def train(pipe):
    torch.manual_seed(1)
    master = {n: torch.nn.Parameter(0.02 * torch.randn(s)) for n, s in shapes()}
    adam = torch.optim.AdamW(master.values(), lr=1e-6, weight_decay=0)
    for step in range(1, steps + 2):
        out = os.path.join(run, str(step))
        os.mkdir(out)
        model = {n: p.detach().to(torch.bfloat16) for n, p in master.items()}
        save_file(model, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
        pipe.send(time.monotonic())
        pipe.recv()
        for p in master.values():
            p.grad = torch.randn_like(p)
        adam.step()


def main():
    os.makedirs(run, exist_ok=True)
    here, there = multiprocessing.Pipe()
    trainer = multiprocessing.get_context("fork").Process(target=train, args=(there,), daemon=True)
    following = ckptfs.watch(run, all=True, settle=0.1, program=program)
    trainer.start()
    here.recv()
    first = next(following)
    assert first.before is None and first.patch is None, first
    weights = {n: t.clone() for n, t in load_file(first.path / "model.safetensors").items()}
    here.send(None)
    for _ in range(steps):
        step = next(following)
        ckptfs.apply(step.patch, weights)
        swapped = time.monotonic()
        closed = here.recv()
        moved = os.path.getsize(step.patch)
        began = time.monotonic()
        full = load_file(step.path / "model.safetensors")
        copy = {n: t.clone() for n, t in full.items()}
        reload = time.monotonic() - began
        assert full.keys() == weights.keys()
        for n, t in copy.items():
            assert torch.equal(t.view(torch.int16), weights[n].view(torch.int16)), n
        print(json.dumps({"step": step.step, "seconds": round(swapped - closed, 3), "patch": moved,
                          "model": os.path.getsize(step.path / "model.safetensors"), "reload": round(reload, 3)}), flush=True)
        here.send(None)
    trainer.join()


main()
