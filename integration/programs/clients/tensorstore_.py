"""TensorStore: zarr3, zarr2 and N5 arrays as files of chunks, and zarr3 in an OCDBT database; parts of them rewritten."""
import os

import numpy as np
import tensorstore as ts
from state import arrays

SAME_NAMES = False  # OCDBT names its files at random
KINDS = {"zarr3": "zarr3", "zarr": "zarr", "n5": "n5", "ocdbt": "zarr3"}


def spec(dir, kind):
    path = os.path.join(dir, kind)
    kv = {"driver": "file", "path": path + "/"}
    if kind == "ocdbt":
        kv = {"driver": "ocdbt", "base": kv, "path": "x/"}
    return {"driver": KINDS[kind], "kvstore": kv}


def data(version, size):
    return arrays(version, size, 1)["layer0/weight"]


def save(dir, version, size):
    a = data(version, size)
    for kind in KINDS:
        store = ts.open(spec(dir, kind), create=True, delete_existing=True, dtype=ts.float32, shape=a.shape).result()
        store.write(a).result()


def saver(dir, version, size):
    a = data(version, size)
    store = ts.open(spec(dir, "zarr3"), create=True, dtype=ts.float32, shape=a.shape).result()
    return lambda: store.write(a).result()


def load(dir):
    return ts.open(spec(dir, "zarr3")).result().read().result()


def ways(dir):
    for kind in KINDS:
        store = ts.open(spec(dir, kind)).result()
        yield kind, store.read().result()
        yield f"{kind} part", store[3:9, 5:50].read().result()


def change(dir, version, size):
    for kind in KINDS:
        store = ts.open(spec(dir, kind)).result()
        store[7:11, :].write(np.float32(version)).result()
        with ts.Transaction() as t:
            store.with_transaction(t)[0:2, 0:2].write(np.float32(-version)).result()
