"""timing.py CLIENT ROUNDS SIZE PLAIN MOUNT STORE CKPTFS: times one client's save and load in both folders, now one first and now the
other. Prints one JSON object a figure: {"what", "ours", "seconds", "bytes"}. A load reads every byte of what was loaded.

    save             with what is saved made beforehand
    load, resident   packed already, the raw copy there
    load, cold       without the raw copy, and nothing cached of the segments; beside a plain file of which nothing is cached
    load, warm       once more
"""
import gc
import importlib
import json
import os
import shutil
import subprocess
import sys
import time

from state import files, touch

name, rounds, size, plain, mount, store, ckptfs = sys.argv[1:]
rounds, size = int(rounds), int(size)
client = importlib.import_module(name)
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
getattr(client, "setup", lambda: None)()
saver = getattr(client, "saver", lambda *args: lambda: client.save(*args))


def timed(what, ours, n, f):
    gc.collect()
    start = time.perf_counter()
    f()
    seconds = time.perf_counter() - start
    print(json.dumps({"what": what, "ours": ours, "seconds": seconds, "bytes": n}), file=answers, flush=True)


def command(word):
    gc.collect()
    for _ in range(600):  # evict leaves what somebody holds yet
        if subprocess.run([ckptfs, word, mount], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
            return
        time.sleep(0.1)
    sys.exit(f"ckptfs {word} does not succeed")


def cool(root):
    os.sync()
    for _, path in files(root):
        with open(path, "rb") as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def load(folder):
    touch(client.load(folder))


for i in range(rounds + 1):
    sides = [False, True] if i % 2 == 0 else [True, False]
    folder = {ours: os.path.join(mount if ours else plain, f"{name}-{i}") for ours in sides}
    for ours in sides:
        os.mkdir(folder[ours])
        save = saver(folder[ours], i + 1, size)
        os.sync()
        if i == 0:  # the first time everything is slow: lazy imports, pages of the libraries
            save()
            load(folder[ours])
        else:
            timed("save", ours, size, save)
        del save
    if i:
        command("sync")
        n = sum(os.path.getsize(path) for _, path in files(folder[False]))
        for ours in sides:
            timed("load, resident", ours, n, lambda: load(folder[ours]))
        command("evict")
        cool(os.path.join(store, "segments"))
        cool(folder[False])
        for ours in sides:
            timed("load, cold", ours, n, lambda: load(folder[ours]))
        for ours in sides:
            timed("load, warm", ours, n, lambda: load(folder[ours]))
    gc.collect()
    for ours in sides:
        shutil.rmtree(folder[ours])
