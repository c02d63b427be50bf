"""safetensors: torch and NumPy, whole files and slices."""
import os

import safetensors.numpy
import safetensors.torch
from safetensors import safe_open
from state import arrays, tensors

EXACT = True


def save(dir, version, size):
    safetensors.torch.save_file(tensors(version, size), os.path.join(dir, "model.safetensors"), metadata={"format": "pt"})
    safetensors.numpy.save_file(arrays(version, size), os.path.join(dir, "numpy.safetensors"))


def saver(dir, version, size):
    sd = tensors(version, size)
    return lambda: safetensors.torch.save_file(sd, os.path.join(dir, "model.safetensors"))


def load(dir):
    return safetensors.torch.load_file(os.path.join(dir, "model.safetensors"))


def ways(dir):
    yield "numpy", safetensors.numpy.load_file(os.path.join(dir, "numpy.safetensors"))
    for framework in ("pt", "np"):
        with safe_open(os.path.join(dir, "model.safetensors"), framework=framework) as f:
            yield f"slices {framework}", {
                k: f.get_slice(k)[1:7] if len(f.get_slice(k).get_shape()) == 2 else f.get_tensor(k) for k in f.keys()}
            yield f"metadata {framework}", f.metadata()
