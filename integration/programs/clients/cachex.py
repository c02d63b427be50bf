"""cachex.py DIR FLUSH [VALUES]: torchcachex's pattern with real pyarrow: append-only Arrow IPC segments, an index rewritten at each flush by
temporary file and rename, reads by mapping.

Reads a command a line and answers one JSON object a line:
    fill N        puts N flushes of FLUSH samples: {"flush": seconds each, "samples", "index": bytes, "segment": bytes of the last}
    read          10 batches of 100 random samples: {"seconds"}; each compared with what it was made from
    rebuild       the index is made again from the segments, and compared with the one that was read: {"samples"}
"""
import json
import os
import pickle
import sys
import time

import numpy as np
import pyarrow as pa

dir, flush, values = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 64
schema = pa.schema([("key", pa.string()), ("data", pa.list_(pa.float32())), ("shape", pa.list_(pa.int64()))],
                   metadata={"torch_dtype": "torch.float32"})


class Cache:
    def __init__(self):
        self.segments, self.index_path = os.path.join(dir, "segments"), os.path.join(dir, "index.pkl")
        os.makedirs(self.segments, exist_ok=True)
        self.index = {}
        if os.path.exists(self.index_path):
            with open(self.index_path, "rb") as f:
                self.index = pickle.load(f)
        self.next = len(os.listdir(self.segments))

    def segment(self, i):
        return os.path.join(self.segments, f"segment_{i:06d}.arrow")

    def flush(self, first):
        keys = [f"module:sample_{first + i}" for i in range(flush)]
        data = sample(first, flush)
        batch = pa.record_batch([pa.array(keys), pa.array(list(data), pa.list_(pa.float32())),
                                 pa.array([[values]] * flush, pa.list_(pa.int64()))], schema=schema)
        start = time.perf_counter()
        path = self.segment(self.next)
        with pa.OSFile(path + ".tmp", "wb") as sink, pa.ipc.new_file(sink, schema) as w:
            w.write_batch(batch)
        for i, k in enumerate(keys):
            self.index[k] = (self.next, i)
        os.rename(path + ".tmp", path)
        with open(self.index_path + ".tmp", "wb") as f:
            pickle.dump(self.index, f)
        os.rename(self.index_path + ".tmp", self.index_path)
        self.next += 1
        return time.perf_counter() - start, os.path.getsize(path)

    def get(self, keys):
        """The samples of these keys, by segment, without a copy until the row is taken."""
        by_segment = {}
        for k in keys:
            s, row = self.index[k]
            by_segment.setdefault(s, []).append((k, row))
        for s, wanted in by_segment.items():
            with pa.memory_map(self.segment(s)) as source:
                column = pa.ipc.open_file(source).read_all()["data"].chunk(0)
                flat = column.values.to_numpy(zero_copy_only=True)
                for k, row in wanted:
                    yield k, flat[row * values:(row + 1) * values]

    def rebuild(self):
        index = {}
        for s in range(self.next):
            with pa.memory_map(self.segment(s)) as source:
                for row, k in enumerate(pa.ipc.open_file(source).read_all()["key"].to_pylist()):
                    index[k] = (s, row)
        return index


def sample(first, n):
    """Rows first … first+n-1, each made from its number."""
    return np.random.default_rng(first).standard_normal((n, values), dtype=np.float32)


def read(cache):
    g = np.random.default_rng(1)
    batches = [g.choice(len(cache.index), 100) for _ in range(10)]
    start = time.perf_counter()
    got = [[(k, row.copy()) for k, row in cache.get([f"module:sample_{i}" for i in b])] for b in batches]
    seconds = time.perf_counter() - start
    for batch in got:
        for k, row in batch:
            i = int(k.rpartition("_")[2])
            if not np.array_equal(row, sample(i - i % flush, flush)[i % flush]):
                raise AssertionError(f"{k} has other values")
    return {"seconds": seconds}


def run(command, args):
    cache = Cache()  # opened again each time, as a process of its own would
    if command == "fill":
        took = []
        for _ in range(int(args[0])):
            seconds, size = cache.flush(len(cache.index))
            took.append(seconds)
        return {"flush": took, "samples": len(cache.index), "index": os.path.getsize(cache.index_path), "segment": size}
    if command == "read":
        return read(cache)
    if cache.rebuild() != cache.index:
        raise AssertionError("the segments have another index")
    return {"samples": len(cache.index)}


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        command, *args = line.split()
        try:
            print(json.dumps(run(command, args)), flush=True)
        except Exception as e:
            print(json.dumps({"bad": f"{type(e).__name__}: {e}"}), flush=True)
