"""evostore.py WAY FOLDER WRITERS LAYERS BYTES CHANGED: as many processes as WRITERS each save a model of LAYERS tensors of together BYTES bytes, all at once, after its
last CHANGED layers were trained: EvoStore's experiment of incremental writes. The models that they come from are saved first, in the same way.

WAY is hdf5 or safetensors, one file a model, saved whole; or derive, SHARDS safetensors files a model, saved by ckptfs.derive.
It waits for a line before the children are saved, answers with the seconds from the first one's beginning to the last one's close, and ends at the next line."""
import json
import multiprocessing
import os
import sys
import time

import numpy as np
from safetensors.numpy import save_file

way, folder = sys.argv[1:3]
writers, layers, size, changed = map(int, sys.argv[3:])
SHARDS = 20
values = size // layers // 4
names = [f"layer.{i:03}.weight" for i in range(layers)]


def shards(tensors):
    per = -(-layers // SHARDS)
    for i in range(0, layers, per):
        yield f"model-{i // per + 1:05}-of-{-(-layers // per):05}.safetensors", {n: tensors[n] for n in names[i:i + per]}


def save(tensors, step):
    os.makedirs(step)
    if way == "hdf5":
        import h5py
        with h5py.File(f"{step}/model.h5", "w") as f:
            for n, t in tensors.items():
                f.create_dataset(n, data=t)
    elif way == "safetensors":
        save_file(tensors, f"{step}/model.safetensors")
    else:
        for n, part in shards(tensors):
            save_file(part, f"{step}/{n}")


def writer(w, barrier, results):
    if way == "derive":
        import ckptfs
    rng = np.random.default_rng(w)
    run = f"{folder}/runs/w{w}"
    tensors = {n: rng.standard_normal(values, dtype=np.float32) for n in names}
    save(tensors, f"{run}/0")
    for n in names[layers - changed:]:
        tensors[n] = rng.standard_normal(values, dtype=np.float32)
    trained = {n: tensors[n] for n in names[layers - changed:]}
    barrier.wait()  # the parents are there
    barrier.wait()  # what they cost is paid
    start = time.monotonic()
    if way == "derive":
        ckptfs.derive(f"{run}/0", f"{run}/1", trained)
    else:
        save(tensors, f"{run}/1")
    results.put((start, time.monotonic()))


context = multiprocessing.get_context("fork")
barrier, results = context.Barrier(writers + 1), context.Queue()
processes = [context.Process(target=writer, args=(w, barrier, results)) for w in range(writers)]
for p in processes:
    p.start()
barrier.wait()
print("ready", flush=True)
sys.stdin.readline()
barrier.wait()
times = [results.get() for _ in processes]
for p in processes:
    p.join()
print(json.dumps({"seconds": max(e for _, e in times) - min(s for s, _ in times)}), flush=True)
sys.stdin.readline()
