"""git: a repository on the mount: commits, a repack, a clone, a branch checked out, bytes as of any commit."""
import os
import subprocess

from state import arrays

SAME_NAMES = False  # pack files are named by what is in them, and threads may order that
UNSTABLE = (".git/index", "clone/.git/index", ".lock")


def git(dir, *args):
    env = os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_AUTHOR_DATE": "2001-01-01T00:00:00Z",
                        "GIT_COMMITTER_DATE": "2001-01-01T00:00:00Z"}
    done = subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "gc.auto=0", "-c", "pack.threads=1",
                           "-c", "safe.directory=*", "-c", "init.defaultBranch=main", "-c", "core.fsync=all", *args], cwd=dir, env=env, capture_output=True)
    if done.returncode:
        raise AssertionError(f"git {args}: {done.stderr.decode()}")
    return done.stdout


def save(dir, version, size):
    repo = os.path.join(dir, "repo")
    first = not os.path.exists(repo)
    if first:
        os.mkdir(repo)
        git(repo, "init", "-q")
    for k, v in arrays(version, size).items():
        v.tofile(os.path.join(repo, k.replace("/", "-")))
    with open(os.path.join(repo, "log.txt"), "a") as f:
        f.write(f"version {version}\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", f"version {version}")
    git(repo, "tag", "-f", f"v{version}")
    if first:
        git(repo, "tag", "first")
    git(repo, "repack", "-adq")
    git(repo, "checkout", "-q", "first")
    git(repo, "checkout", "-q", "main")


def load(dir):
    repo = os.path.join(dir, "repo")
    return {"fsck": git(repo, "fsck", "--strict"), "status": git(repo, "status", "--porcelain"), "log": git(repo, "log", "--stat", "--all"),
            "first": git(repo, "cat-file", "blob", "first:layer3-weight"), "now": git(repo, "cat-file", "blob", "HEAD:layer3-weight")}
