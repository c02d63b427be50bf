"""The cache of huggingface_hub: blobs, links to them by revision, and revisions that share blobs; `hf cache ls`, `verify`
and `rm`; transformers from the cache alone."""
import contextlib
import functools
import io
import os
import tempfile

from hub import Hub

hub = Hub()
# The library reads these when it is imported.
os.environ |= {"HF_ENDPOINT": hub.endpoint, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
               "HF_HUB_DISABLE_PROGRESS_BARS": "1", "NO_COLOR": "1"}

from huggingface_hub import HfApi, scan_cache_dir, snapshot_download  # noqa: E402
from huggingface_hub.cli.hf import app  # noqa: E402
from transformers import GPT2LMHeadModel  # noqa: E402

from transformers_ import model  # noqa: E402

os.environ.pop("HF_HUB_OFFLINE", None)
import huggingface_hub.constants  # noqa: E402

huggingface_hub.constants.HF_HUB_OFFLINE = False

EXACT = True
REPO = "people/gpt2"


@functools.lru_cache(maxsize=None)
def pushed(version, size):
    """The revision of a version: shards, of which all but the last are those of every version."""
    with tempfile.TemporaryDirectory() as folder:
        model(version, size).save_pretrained(folder, max_shard_size=max(size // 3, 100_000))
        with open(os.path.join(folder, "README.md"), "w") as f:
            f.write(f"version {version}\n")
        return hub.push(REPO, folder)


def hf(cache, *args):
    """`hf cache …`, in this process: another user may not start the interpreter."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        app(["cache", *args, "--cache-dir", cache], standalone_mode=False)
    return said.getvalue()


def revisions(cache):
    return sorted(r.commit_hash for repo in scan_cache_dir(cache).repos for r in repo.revisions)


def save(dir, version, size):
    cache = os.path.join(dir, "hub")
    commit = pushed(version, size)
    snapshot_download(REPO, revision=commit, cache_dir=cache)
    snapshot_download(REPO, revision="main", cache_dir=cache)  # is there already
    if version == 3:  # what no other revision has goes, and what others share stays
        hf(cache, "rm", pushed(2, size), "--yes")
        listed = hf(cache, "ls", "--revisions", "--no-truncate")
        assert pushed(2, size) not in listed and commit in listed, listed
        hf(cache, "verify", REPO, "--revision", commit)


def load(dir):
    cache = os.path.join(dir, "hub")
    seen = {}
    for commit in revisions(cache):
        seen[commit] = GPT2LMHeadModel.from_pretrained(REPO, revision=commit, cache_dir=cache, local_files_only=True).state_dict()
    return seen


def ways(dir):
    cache = os.path.join(dir, "hub")
    found = scan_cache_dir(cache)
    yield "scan", {"size": found.size_on_disk, "warnings": [str(w) for w in found.warnings],
                   "blobs": sorted((f.file_name, r.commit_hash, os.path.basename(f.blob_path), f.size_on_disk)
                                   for repo in found.repos for r in repo.revisions for f in r.files)}
    yield "again", os.path.basename(snapshot_download(REPO, revision=revisions(cache)[0], cache_dir=cache, local_files_only=True))
    for commit in revisions(cache):
        yield "verify " + commit, checked(cache, commit)


def checked(cache, commit):
    """What `hf cache verify` compares."""
    said = HfApi().verify_repo_checksums(REPO, revision=commit, cache_dir=cache)
    assert not said.mismatches, said
    return said.checked_count
