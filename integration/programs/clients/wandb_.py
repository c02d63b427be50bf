"""W&B offline: a run logs a model as an artifact; its staging, and the cache that downloads are kept in, with its clean-up."""
import base64
import hashlib
import os
import tempfile

os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false", "WANDB_CONSOLE": "off"}

import wandb  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402
from state import arrays, files  # noqa: E402
from wandb.sdk.artifacts.artifact_file_cache import ArtifactFileCache  # noqa: E402

SAME_NAMES = False  # runs are named by the time, what is staged by chance
UNSTABLE = ("/logs/",)


def save(dir, version, size):
    os.environ |= {"WANDB_DIR": dir, "WANDB_DATA_DIR": dir + "/data", "WANDB_CACHE_DIR": dir + "/cache", "WANDB_CONFIG_DIR": dir + "/config"}
    with tempfile.TemporaryDirectory(dir=dir) as made:
        model = os.path.join(made, "model.safetensors")
        save_file(arrays(version, size), model)
        with wandb.init(project="models", id=f"run{version}", dir=dir, settings=wandb.Settings(console="off")) as run:
            artifact = wandb.Artifact("model", type="model", metadata={"version": version})
            artifact.add_file(model, name="model.safetensors")
            run.log_artifact(artifact)
            run.log({"loss": 1 / version})
        wandb.teardown()  # its service has logs open as long as it runs
        with open(model, "rb") as f:
            data = f.read()
    cache = ArtifactFileCache(os.path.join(dir, "cache/artifacts"))
    path, hit, opener = cache.check_digest_obj_path(digest(data), len(data))
    assert not hit
    with opener("wb") as f:
        f.write(data)
    if version == 3:  # the least recently used goes; with relatime that is left to chance
        blobs = sorted((os.stat(p).st_mtime_ns, p) for _, p in files(os.path.join(dir, "cache/artifacts/obj")))
        for used, (mtime, p) in enumerate(blobs):
            os.utime(p, ns=(used, mtime))
        cache.cleanup(target_size=2 * len(data) + 1)


def digest(data):
    return base64.b64encode(hashlib.md5(data).digest()).decode()


def load(dir):
    cache, seen = ArtifactFileCache(os.path.join(dir, "cache/artifacts")), {}
    for name, path in files(dir):
        if name.startswith(("data/artifacts/staging", "cache/artifacts/obj")):
            with open(path, "rb") as f:
                data = f.read()
            seen[name.split("/")[1:3] == ["artifacts", "obj"], digest(data)] = load_file(path)
            if "/obj/" in name:
                found, hit, _ = cache.check_digest_obj_path(digest(data), len(data))
                assert hit and os.path.samefile(found, path)
        elif name.endswith(".wandb"):
            with open(path, "rb") as f:
                seen[os.path.basename(name)] = f.read(4)
    return seen
