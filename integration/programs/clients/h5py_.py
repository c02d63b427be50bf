"""h5py: HDF5's locks, growing datasets in place, SWMR with a reader in another process."""
import os

import h5py
import numpy as np
from state import arrays


def save(dir, version, size):
    with h5py.File(os.path.join(dir, "all.h5"), "w") as f:
        for k, v in arrays(version, size).items():
            f[k] = v
        f.attrs["version"] = version
    with h5py.File(os.path.join(dir, "grows.h5"), "w", libver="latest") as f:
        f.create_dataset("log", shape=(0, 64), maxshape=(None, 64), chunks=(64, 64), dtype="f4")
    append(dir, version, 10)


def saver(dir, version, size):
    a = arrays(version, size)

    def run():
        with h5py.File(os.path.join(dir, "all.h5"), "w") as f:
            for k, v in a.items():
                f[k] = v
            f.attrs["version"] = version
    return run


def append(dir, version, rounds):
    """SWMR: the file is open for writing while another process reads what has been flushed."""
    path = os.path.join(dir, "grows.h5")
    rows = Beside(lambda: reader(path))
    with h5py.File(path, "r+", libver="latest") as f:
        log = f["log"]
        f.swmr_mode = True
        for i in range(rounds):
            log.resize(log.shape[0] + 64, axis=0)
            log[-64:] = np.full((64, 64), version * 1000 + i, np.float32)
            log.flush()
            if i == rounds // 2 and (seen := rows.ask()) != len(log):
                raise AssertionError(f"the reader sees {seen} rows of {len(log)}")


class Beside:
    """A process that was forked before this one opened anything, and calls f when it is asked to."""

    def __init__(self, f):
        (r, self.w), (self.r, w) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.w)
            try:
                if os.read(r, 1):
                    os.write(w, str(f()).encode())
            finally:
                os._exit(0)
        os.close(r)
        os.close(w)

    def ask(self):
        os.write(self.w, b"?")
        said = os.read(self.r, 100)
        os.close(self.r)
        os.close(self.w)
        os.waitpid(self.pid, 0)
        return int(said or -1)


def reader(path):
    with h5py.File(path, "r", libver="latest", swmr=True) as f:
        return len(f["log"])


def refused(path):
    """1 when HDF5's lock keeps a second writer out."""
    try:
        h5py.File(path, "r+").close()
    except OSError:
        return 1
    return 0


def load(dir):
    with h5py.File(os.path.join(dir, "all.h5"), "r") as f:
        found = {}
        f.visititems(lambda name, d: found.update({name: d[()]}) if isinstance(d, h5py.Dataset) else None)
        return found | {"version": int(f.attrs["version"])}


def ways(dir):
    with h5py.File(os.path.join(dir, "grows.h5"), "r") as f:
        yield "grown", f["log"][()]
    with h5py.File(os.path.join(dir, "all.h5"), "r") as f:
        yield "slice", f["layer3/weight"][2:5, 10:20]
    with h5py.File(os.path.join(dir, "all.h5"), "r", driver="core") as f:
        yield "in memory", f["layer3/weight"][()]


def change(dir, version, size):
    path = os.path.join(dir, "all.h5")
    second = Beside(lambda: refused(path))
    with h5py.File(path, "r+") as f:
        if second.ask() != 1:
            raise AssertionError("a second process may write, too: the lock does not hold")
        f["layer3/weight"][1:4] = version
        f.attrs["version"] = version
        del f["layer2/weight"]
        f["layer2/weight"] = np.full((300, 256), version, np.float32)
    append(dir, version, 4)
