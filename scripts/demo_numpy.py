"""The demo's training without torch: one hidden layer over 3x32x32 images, 4.9 M parameters, of which the last
16,010 are trained."""
import numpy as np
from safetensors.numpy import load_file as load_view  # noqa: F401

SAVE, ENDING = "numpy.savez", ".npz"
PIXELS, HIDDEN, CLASSES = 3 * 32 * 32, 1600, 10


def load(path):
    with np.load(path) as arrays:
        return dict(arrays)


LOADS = [("numpy.load(model.npz)", load)]


def same(a, b):
    """Bit for bit, so that NaN equals itself and -0 does not equal 0."""
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and a[k].tobytes() == b[k].tobytes() for k in a)


class Training:
    def __init__(self):
        rng = np.random.default_rng(0)
        classes = rng.standard_normal((CLASSES, PIXELS), np.float32)
        self.labels = rng.integers(CLASSES, size=128)
        images = classes[self.labels] + np.float32(0.7) * rng.standard_normal((128, PIXELS), np.float32)
        self.model = {
            "backbone.weight": rng.standard_normal((HIDDEN, PIXELS), np.float32) / np.float32(PIXELS ** 0.5),
            "backbone.bias": np.zeros(HIDDEN, np.float32),
            "head.weight": np.zeros((CLASSES, HIDDEN), np.float32),
            "head.bias": np.zeros(CLASSES, np.float32),
        }
        self.tensors = len(self.model)
        self.features = np.maximum(images @ self.model["backbone.weight"].T + self.model["backbone.bias"], 0)

    def step(self):
        logits = self.features @ self.model["head.weight"].T + self.model["head.bias"]
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        loss = -np.log(p[np.arange(len(p)), self.labels]).mean()
        p[np.arange(len(p)), self.labels] -= 1  # the gradient of the logits
        self.model["head.weight"] -= np.float32(0.02 / len(p)) * (p.T @ self.features)
        self.model["head.bias"] -= np.float32(0.02 / len(p)) * p.sum(0)
        return float(loss)

    def save(self, path):
        np.savez(path, **self.model)

    def state(self):
        return {k: v.copy() for k, v in self.model.items()}
