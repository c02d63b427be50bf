"""Trains a small model for a few steps with a frozen backbone and saves every step on a ckptfs mount; reads each back
in several ways; prints what it cost. With torch the model is a CNN, saved with torch.save; without, one hidden layer in
numpy, saved with numpy.savez.

    demo.py CKPTFS MOUNTPOINT
"""
import hashlib
import json
import os
import subprocess
import sys
import time

try:
    import demo_torch as library
except ImportError:
    import demo_numpy as library

CKPTFS, MNT = sys.argv[1:]
STEPS = 8


def mb(n):
    return f"{n / 1e6:,.1f} MB"


def check(what, ok):
    print(f"  {what:<62}{'identical' if ok else 'DIFFERENT'}")
    if not ok:
        sys.exit(1)


def ckptfs(*args):
    return subprocess.run([CKPTFS, *args, MNT], check=True, capture_output=True).stdout


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


training = library.Training()
print(f"training: {training.tensors} tensors, backbone frozen, every step saved with {library.SAVE}")
saved, sums = {}, {}
for step in range(1, STEPS + 1):
    loss = training.step()
    path = f"{MNT}/runs/demo/{step}/model{library.ENDING}"
    os.makedirs(os.path.dirname(path))
    start = time.perf_counter()
    training.save(path)
    took = time.perf_counter() - start
    saved[path], sums[path] = training.state(), sha256(path)
    print(f"  step {step}  loss {loss:.3f}  {path[len(MNT) + 1:]}  {mb(os.path.getsize(path))} in {took * 1e3:.0f} ms")

ckptfs("sync")
ckptfs("evict")  # from here on there are chunks only
print("read back, the raw copies evicted:")
check("sha256 of each file", all(sha256(p) == s for p, s in sums.items()))
for what, load in library.LOADS:
    check(what, all(library.same(load(p), state) for p, state in saved.items()))
views = {p.removesuffix(library.ENDING) + ".safetensors": state for p, state in saved.items()}
check("safetensors load_file(model.safetensors), never written",
      all(library.same(library.load_view(p), state) for p, state in views.items()))

files, stored = sum(os.path.getsize(p) for p in saved), json.loads(ckptfs("stats", "--json"))["stored_bytes"]
print(f"as files     {mb(files):>10}")
print(f"stored once  {mb(stored):>10}   {files / stored:.1f} times less")
