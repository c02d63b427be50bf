"""server.py FILE: an inference server that maps a safetensors file: load_file, whose tensors are the mapping.

Reads a command a line and answers one JSON object a line:
    load          {"seconds", "sum"}: opens and reads every tensor
    again         {"seconds", "sum"}: reads every tensor of the mapping it has
    pss           {"pss", "rss"}: bytes of the file's mappings in this process, shared pages by their share
"""
import json
import sys
import time

import torch
from safetensors import safe_open

torch.set_num_threads(1)
path = sys.argv[1]
tensors = {}


def load():
    tensors.clear()
    with safe_open(path, framework="pt") as f:
        for k in f.keys():
            tensors[k] = f.get_tensor(k)
    return again()


def again():
    return {"sum": sum(int(t.view(torch.int32).sum(dtype=torch.int64)) for t in tensors.values())}


def pss():
    found = {"pss": 0, "rss": 0}
    ours = False
    with open("/proc/self/smaps") as f:
        for line in f:
            word, *rest = line.split()
            if not word.endswith(":"):
                ours = line.rstrip().endswith(path)
            elif ours and word in ("Pss:", "Rss:"):
                found[word[:-1].lower()] += int(rest[0]) * 1024
    return found


print("ready", flush=True)
for line in sys.stdin:
    start = time.perf_counter()
    answer = {"load": load, "again": again, "pss": pss}[line.strip()]()
    print(json.dumps(answer | {"seconds": time.perf_counter() - start}), flush=True)
