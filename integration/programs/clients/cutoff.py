"""cutoff.py LIBRARY DIR SIZE: saves checkpoint after checkpoint until somebody kills it, or the filesystem under it.

Reads a command a line and answers one line; each runs in a process of its own, forked before a library started threads.
    go FROM       answers "pid N" at once; the process saves steps FROM, FROM+1, … and appends each step's number to DIR's
                  twin DIR.acknowledged once the library said that it is saved
    verify        loads what the library itself takes for saved: answers "ok STEPS…" when each has the bytes of that step, and
                  the last that was acknowledged is among them
"""
import os
import shutil
import sys
import tempfile
import traceback

from state import arrays, differences, digest, tensors

library, dir, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
log = dir + ".acknowledged"
KEEP = 3


class Orbax:
    def __init__(self):
        import jax
        import orbax.checkpoint as ocp
        self.jax, self.ocp = jax, ocp

    def manager(self):
        options = self.ocp.CheckpointManagerOptions(max_to_keep=KEEP, create=True)
        return self.ocp.CheckpointManager(os.path.join(dir, "orbax"), options=options)

    def steps(self, step):
        with self.manager() as m:
            while True:
                m.save(step, args=self.ocp.args.StandardSave(arrays(step, size)))
                m.wait_until_finished()
                yield step
                step += 1

    def load(self):
        with self.manager() as m:
            # An older one is being removed, file by file: what is gone of it reads as empty.
            return {s: m.restore(s, args=self.ocp.args.StandardRestore()) for s in sorted(m.all_steps())[-KEEP:]}

    def want(self, step):
        return arrays(step, size)


class DCP:
    def __init__(self):
        import torch
        import torch.distributed.checkpoint as dcp
        self.torch, self.dcp = torch, dcp

    def steps(self, step):
        while True:
            self.dcp.save(tensors(step, size), checkpoint_id=os.path.join(dir, f"step-{step}"), no_dist=True)
            yield step
            shutil.rmtree(os.path.join(dir, f"step-{step - KEEP}"), ignore_errors=True)
            step += 1

    def load(self):
        found = {}
        for name in os.listdir(dir):
            step = int(name.partition("-")[2])
            folder = os.path.join(dir, name)
            if not os.path.exists(os.path.join(folder, ".metadata")) or len(os.listdir(folder)) < 2:
                continue  # it is written last; a folder being removed may have it still
            found[step] = {k: self.torch.empty_like(v) for k, v in tensors(step, size).items()}
            self.dcp.load(found[step], checkpoint_id=folder, no_dist=True)
        return found

    def want(self, step):
        return tensors(step, size)


class Lightning:
    """What a Trainer's ModelCheckpoint does at each step: its strategy's save_checkpoint, then removal of an older one."""

    def __init__(self):
        import torch
        from lightning.fabric.plugins.io import TorchCheckpointIO
        self.torch, self.io = torch, TorchCheckpointIO()

    def steps(self, step):
        os.makedirs(os.path.join(dir, "tmp"), exist_ok=True)
        tempfile.tempdir = os.path.join(dir, "tmp")  # beside: what is renamed must not cross filesystems
        while True:
            self.io.save_checkpoint({"state_dict": tensors(step, size), "step": step}, os.path.join(dir, f"step-{step}.ckpt"))
            yield step
            if os.path.exists(old := os.path.join(dir, f"step-{step - KEEP}.ckpt")):
                self.io.remove_checkpoint(old)
            step += 1

    def load(self):
        return {int(n[5:-5]): self.torch.load(os.path.join(dir, n))["state_dict"] for n in os.listdir(dir) if n.startswith("step-")}

    def want(self, step):
        return tensors(step, size)


def acknowledged():
    try:
        with open(log) as f:
            return [int(line) for line in f.read().split()]
    except FileNotFoundError:
        return []


def go(lib, first):
    with open(log, "a") as f:
        for step in lib.steps(first):
            f.write(f"{step}\n")
            f.flush()


def verify(lib):
    found = lib.load()
    for step, got in sorted(found.items()):
        if bad := differences(digest(lib.want(step)), digest(got)):
            return f"bad step {step}: {bad}"
    saved = acknowledged()
    if saved and saved[-1] not in found:
        return f"bad: step {saved[-1]} was saved, {sorted(found)} are there"
    return f"ok {' '.join(map(str, sorted(found)))}"


def child(f, *args):
    """f(*args) in a process of its own; its answer by a pipe."""
    r, w = os.pipe()
    pid = os.fork()
    if pid:
        os.close(w)
        return pid, r
    said = ""
    try:
        said = f(*args) or ""
    except BaseException:
        traceback.print_exc()
        said = "bad " + traceback.format_exc().strip().replace("\n", " | ")[-1500:]
    os.write(w, said.encode()[:4000])
    os._exit(0)


answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
try:
    lib = {"orbax": Orbax, "dcp": DCP, "lightning": Lightning}[library]()
except ImportError as e:
    sys.exit(print(f"missing: {e}", file=answers))
print("ready", file=answers, flush=True)
for line in sys.stdin:
    command, *args = line.split()
    if command == "go":
        pid, r = child(go, lib, int(args[0]))
        print(f"pid {pid}", file=answers, flush=True)
    else:
        _, r = child(verify, lib)
        with os.fdopen(r, "rb") as f:
            print(f.read().decode().replace("\n", " "), file=answers, flush=True)
    # Whatever was killed is reaped when its pipe's end is seen, at the next command at the latest.
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
