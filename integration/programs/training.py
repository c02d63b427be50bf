"""training.py [SECONDS PAUSE]: trains a small model on all processors, with a pause after so many seconds if they are said, and prints, after each word on standard input, the seconds a step took
since the word before: the mean, and the steps, as JSON. Ends with its input."""
import json
import statistics
import sys
import threading
import time

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512))
opt = torch.optim.AdamW(model.parameters())
x = torch.randn(256, 512)
steps, over = [], threading.Event()


def answer():
    for _ in sys.stdin:
        taken = steps[:]
        del steps[:len(taken)]
        print(json.dumps({"mean": statistics.fmean(taken) if taken else 0, "steps": len(taken)}), flush=True)
    over.set()


threading.Thread(target=answer, daemon=True).start()
work, pause = map(float, sys.argv[1:] or (0, 0))
print("ready", flush=True)
began = time.monotonic()
while not over.is_set():
    if pause and time.monotonic() - began > work:
        over.wait(pause)
        began = time.monotonic()
    start = time.perf_counter()
    opt.zero_grad()
    (model(x) - x).square().mean().backward()
    opt.step()
    steps.append(time.perf_counter() - start)
