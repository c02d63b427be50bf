"""DVC: a workspace, and a DVC remote beside it that the workspace pushes to; loaded by another workspace that pulls."""
import os
import shutil
import tempfile

from dvc_ import must
from state import arrays, files

CTIME = False
SAME_NAMES = False  # what DVC keeps for itself
UNSTABLE = ("/.dvc/", ".dvcignore")


def workspace(ws, store):
    must(ws, "init", "--no-scm", "-f")
    must(ws, "config", "core.analytics", "false")
    must(ws, "remote", "add", "-f", "-d", "store", store)


def save(dir, version, size):
    ws = os.path.join(dir, "ws")
    if not os.path.exists(os.path.join(ws, ".dvc")):
        os.makedirs(ws, exist_ok=True)
        workspace(ws, os.path.join(dir, "store"))
    data = os.path.join(ws, "data")
    os.makedirs(data, exist_ok=True)
    for k, v in arrays(version, size).items():
        v.tofile(os.path.join(data, k.replace("/", "-")))
    must(ws, "add", "data")
    must(ws, "push")


def load(dir):
    ws = tempfile.mkdtemp()
    workspace(ws, os.path.join(dir, "store"))
    shutil.copy(os.path.join(dir, "ws", "data.dvc"), ws)
    must(ws, "pull")
    shutil.rmtree(os.path.join(ws, "data"))
    must(ws, "checkout")
    found = {}
    for name, path in files(os.path.join(ws, "data")):
        with open(path, "rb") as f:
            found[name] = f.read()
    shutil.rmtree(ws)
    return found
