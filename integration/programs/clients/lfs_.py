"""git-lfs: models in a repository on the mount; commits, an older one checked out, `git lfs fsck` and `prune`."""
import os
import subprocess

import git_
from git_ import git
from safetensors.numpy import load_file, save_file
from state import arrays

SAME_NAMES = False
UNSTABLE = git_.UNSTABLE + (".git/lfs/cache",)


def setup():
    if subprocess.run(["git", "lfs", "version"], capture_output=True).returncode:
        raise ImportError("git-lfs")


def save(dir, version, size):
    repo = os.path.join(dir, "repo")
    if not os.path.exists(repo):
        os.mkdir(repo)
        git(repo, "init", "-q")
        git(repo, "lfs", "install", "--local")
        git(repo, "lfs", "track", "*.safetensors")
    save_file(arrays(version, size), os.path.join(repo, "model.safetensors"))
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", f"version {version}")
    git(repo, "tag", "-f", f"v{version}")
    git(repo, "checkout", "-q", "v1")
    git(repo, "checkout", "-q", "main")


def load(dir):
    repo = os.path.join(dir, "repo")
    pointer = git(repo, "cat-file", "blob", "HEAD:model.safetensors")
    return {"pointer": pointer, "smudged": git_smudge(repo, pointer), "files": git(repo, "lfs", "ls-files", "--all", "--long"),
            "fsck": git(repo, "lfs", "fsck"), "status": git(repo, "status", "--porcelain"),
            "model": load_file(os.path.join(repo, "model.safetensors"))}


def git_smudge(repo, pointer):
    done = subprocess.run(["git", "-c", "safe.directory=*", "lfs", "smudge"], cwd=repo, input=pointer, capture_output=True)
    if done.returncode:
        raise AssertionError(done.stderr.decode())
    return done.stdout
