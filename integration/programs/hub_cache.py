"""hub_cache.py DIR: makes DIR the HF_HOME of somebody who downloaded two revisions of a model, from a hub on this machine."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients"))
from hub import Hub  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402
from state import arrays  # noqa: E402

hub = Hub()
os.environ |= {"HF_ENDPOINT": hub.endpoint, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
               "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
from huggingface_hub import snapshot_download  # noqa: E402

for version in 1, 2:
    with tempfile.TemporaryDirectory() as folder:
        save_file(arrays(1, 1_000_000), os.path.join(folder, "base.safetensors"))
        save_file(arrays(version, 1_000_000), os.path.join(folder, "model.safetensors"))
        commit = hub.push("people/model", folder)
    snapshot_download("people/model", cache_dir=os.path.join(sys.argv[1], "hub"))
print(commit)
