"""The folders of programs that are no Python libraries, kept as they keep them: Ollama's blobs and manifests (a download in
parts, renamed once its SHA-256 is right; blobs of no manifest removed; a model by a mapping), and ComfyUI's models (one
folder a kind, a second one by a link, headers read first)."""
import hashlib
import json
import os

import gguf
import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from state import arrays

EXACT = True


def save(dir, version, size):
    ollama(os.path.join(dir, "ollama", "models"), version, size)
    comfy(os.path.join(dir, "ComfyUI", "models"), version, size)


# Ollama

def pull(blobs, data):
    """Downloads a blob as Ollama does: in parts, in any order, into a file of its full size."""
    digest = hashlib.sha256(data).hexdigest()
    path = os.path.join(blobs, "sha256-" + digest)
    if os.path.exists(path):
        return digest
    part = max(1, len(data) // 4)
    with open(path + "-partial", "wb") as f:
        f.truncate(len(data))
    for i in reversed(range(0, len(data), part)):
        with open(path + "-partial", "r+b") as f:
            f.seek(i)
            f.write(data[i:i + part])
        with open(f"{path}-partial-{i // part}", "w") as f:
            json.dump({"N": i // part, "Offset": i, "Completed": min(part, len(data) - i)}, f)
    with open(path + "-partial", "rb") as f:
        assert hashlib.file_digest(f, "sha256").hexdigest() == digest
    for i in range(0, len(data), part):
        os.remove(f"{path}-partial-{i // part}")
    os.rename(path + "-partial", path)
    return digest


def model_file(scratch, version, size):
    w = gguf.GGUFWriter(scratch, "llama")
    w.add_block_count(1)
    for k, v in arrays(version, size).items():
        w.add_tensor(k.replace("/", "."), v.astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    with open(scratch, "rb") as f:
        data = f.read()
    os.remove(scratch)
    return data


def ollama(root, version, size):
    blobs, names = os.path.join(root, "blobs"), os.path.join(root, "manifests/registry.ollama.ai/library/tiny")
    os.makedirs(blobs, exist_ok=True)
    os.makedirs(names, exist_ok=True)
    layers = []
    for kind, data in (("model", model_file(os.path.join(root, "scratch.gguf"), version, size)), ("license", b"free\n" * 100),
                       ("params", json.dumps({"temperature": version}).encode())):
        layers.append({"mediaType": f"application/vnd.ollama.image.{kind}", "size": len(data),
                       "digest": "sha256:" + pull(blobs, data)})
    for tag in ("latest", f"v{version}"):
        with open(os.path.join(names, tag), "w") as f:
            json.dump({"schemaVersion": 2, "layers": layers}, f)
    if version == 3:  # ollama rm tiny:v1
        os.remove(os.path.join(names, "v1"))
    used = {layer["digest"].replace(":", "-") for layer in manifests(names)}
    for blob in os.listdir(blobs):
        if blob not in used:
            os.remove(os.path.join(blobs, blob))


def manifests(names):
    for tag in sorted(os.listdir(names)):
        with open(os.path.join(names, tag)) as f:
            yield from json.load(f)["layers"]


# ComfyUI

def comfy(root, version, size):
    for kind in ("checkpoints", "loras", "vae"):
        os.makedirs(os.path.join(root, kind, "sd"), exist_ok=True)
    save_file(arrays(version, size), os.path.join(root, "checkpoints/sd/model.safetensors"), metadata={"version": str(version)})
    save_file(arrays(1, size), os.path.join(root, f"checkpoints/sd/copy{version}.safetensors"))
    save_file({"lora": arrays(version, size)["layer3/weight"][:4].copy()}, os.path.join(root, "loras/sd/style.safetensors"))
    extra = os.path.join(root, "vae", "shared")
    if not os.path.islink(extra):
        os.symlink("../checkpoints/sd", extra)


def load(dir):
    found, names = {}, os.path.join(dir, "ollama/models/manifests/registry.ollama.ai/library/tiny")
    for layer in manifests(names):
        path = os.path.join(dir, "ollama/models/blobs", layer["digest"].replace(":", "-"))
        with open(path, "rb") as f:
            assert "sha256:" + hashlib.file_digest(f, "sha256").hexdigest() == layer["digest"]
        if layer["mediaType"].endswith("model"):
            found[layer["digest"]] = {t.name: np.array(t.data) for t in gguf.GGUFReader(path, "r").tensors}
    models = os.path.join(dir, "ComfyUI/models")
    for folder, _, files in os.walk(models, followlinks=True):
        for name in files:
            path = os.path.join(folder, name)
            with safe_open(path, "np") as f:
                about = f.metadata()
            found[os.path.relpath(path, models)] = about, load_file(path)
    return found
