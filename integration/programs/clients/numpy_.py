"""NumPy: .npy, .npz, compressed or not, memmap; changed in place through a writable mapping."""
import os

import numpy as np
from state import arrays

EXACT = False  # .npz has the time of day in it


def save(dir, version, size):
    a = arrays(version, size)
    flat = {k.replace("/", "_"): v for k, v in a.items()}
    np.save(os.path.join(dir, "one.npy"), a["layer3/weight"])
    np.savez(os.path.join(dir, "all.npz"), **flat)
    np.savez_compressed(os.path.join(dir, "small.npz"), **flat)
    m = np.memmap(os.path.join(dir, "raw"), dtype=np.float32, mode="w+", shape=a["layer3/weight"].shape)
    m[:] = a["layer3/weight"]
    m.flush()


def saver(dir, version, size):
    a = arrays(version, size)

    def run():
        np.save(os.path.join(dir, "one.npy"), a["layer3/weight"])
        np.savez(os.path.join(dir, "all.npz"), **{k.replace("/", "_"): v for k, v in a.items()})
    return run


def load(dir):
    with np.load(os.path.join(dir, "all.npz")) as z:
        return {"npz": dict(z), "npy": np.load(os.path.join(dir, "one.npy"))}


def ways(dir):
    with np.load(os.path.join(dir, "small.npz")) as z:
        yield "compressed", dict(z)
    yield "mapped", np.load(os.path.join(dir, "one.npy"), mmap_mode="r")
    private = np.load(os.path.join(dir, "one.npy"), mmap_mode="c")
    private[0] = 7  # copy on write: nobody else sees it
    yield "private", private
    yield "memmap", np.memmap(os.path.join(dir, "raw"), dtype=np.float32, mode="r")
    yield "fromfile", np.fromfile(os.path.join(dir, "raw"), dtype=np.float32)


def change(dir, version, size):
    a = np.load(os.path.join(dir, "one.npy"), mmap_mode="r+")
    a[::3] = version  # packed until now: the first store un-packs it
    a.flush()
    m = np.memmap(os.path.join(dir, "raw"), dtype=np.float32, mode="r+")
    m[-5:] = version
    del m  # without flush: the kernel writes it back in its own time
    with open(os.path.join(dir, "one.npy"), "r+b") as f:
        f.seek(-64, os.SEEK_END)
        f.write(bytes([version]) * 64)
