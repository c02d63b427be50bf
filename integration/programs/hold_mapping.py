"""hold_mapping.py KIND SEED PATH: maps PATH with torch.load(mmap=True), then for each line on standard input compares
the mapped tensors with what was saved, and answers "same" or what differs."""
import sys

import torch

from seeded_tensors import differences, flatten, make

kind, seed, path = sys.argv[1:]
want = flatten(make(kind, seed))
got = flatten(torch.load(path, mmap=True))
print("mapped", flush=True)
for _ in sys.stdin:
    print("; ".join(differences(want, got)) or "same", flush=True)
