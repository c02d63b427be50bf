"""Runs Python programs, each in a process of its own that was forked from this one, which has torch imported:
an import takes seconds, a fork none. No thread of torch's exists here before a fork.

Reads one JSON object a line: {"id", "program", "args", "in", "out", "err"}, the last three paths, the first of
them may be null. Answers {"id", "pid"} at once and {"id", "rc"} when it has ended.
"""
import json
import os
import runpy
import select
import signal
import sys
import traceback

import numpy  # noqa: F401
import safetensors.torch  # noqa: F401
import torch  # noqa: F401


def child(job):
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    out = os.open(job["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    err = os.open(job["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.dup2(os.open(job["in"] or os.devnull, os.O_RDONLY), 0)  # a FIFO: waits for its writer
    sys.stdin = os.fdopen(0)
    sys.argv = [job["program"], *job["args"]]
    sys.path.insert(0, os.path.dirname(job["program"]))
    rc = 1
    try:
        runpy.run_path(job["program"], run_name="__main__")
        rc = 0
    except SystemExit as e:
        rc = e.code if isinstance(e.code, int) else 0 if e.code is None else 1
        if rc and not isinstance(e.code, int):
            print(e.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(rc)


def answer(**words):
    os.write(1, (json.dumps(words) + "\n").encode())


def main():
    r, w = os.pipe()
    os.set_blocking(r, False)
    os.set_blocking(w, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(w)
    running = {}
    pending = b""
    while True:
        ready, _, _ = select.select([0, r], [], [])
        if r in ready:
            os.read(r, 4096)
            while running:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                answer(id=running.pop(pid), rc=os.waitstatus_to_exitcode(status))
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                job = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    child(job)
                running[pid] = job["id"]
                answer(id=job["id"], pid=pid)


main()
