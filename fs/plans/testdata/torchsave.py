"""Writes torchsave.json: the SHA-256 of files of zeros as torch.save writes them without sums.

    python torchsave.py > torchsave.json

Each is [tensors, size, SHA-256, gap]: tensors are [name, type, shape], or [name] for None; what the gap has, from one offset
to another, is not summed."""
import hashlib, json
import torch

torch.serialization.set_crc32_options(False)
TYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
LARGE = 1 << 20


class Sum:
    def __init__(self):
        self.at, self.sum, self.gap = 0, hashlib.sha256(), [0, 0]

    def write(self, b):
        if len(b) < LARGE:
            self.sum.update(b)
        else:
            self.gap = [self.gap[0] or self.at, self.at + len(b)]
        self.at += len(b)
        return len(b)

    def flush(self):
        pass


CASES = {
    "few": [["a", "BF16", [2, 3]], ["b"], ["c", "F16", [70000]], ["d", "F32", [256, 255]], ["e", "F32", [1]]],
    "large": [["a", "F32", [3]], ["b", "BF16", [(1 << 31) + 3, 1]], ["c"], ["d", "F16", [5, 7]]],
    "shapes": [["a", "F32", []], ["b", "BF16", [2, 3, 4]], ["c", "F16", [2, 1, 3, 2]], ["f", "BF16", [1, 2, 1, 2, 1]]],
    **{str(n): [[f"tensor.{i}", "BF16", [1]] if i % 3 else [f"none.{i}"] for i in range(n)] for n in (999, 1000, 1001, 2000)},
}
out = {}
for name, tensors in CASES.items():
    s = Sum()
    torch.save({"model": {t[0]: torch.zeros(t[2], dtype=TYPES[t[1]]) if t[1:] else None for t in tensors},
                "checkpoint_version": 3.0, "iteration": 0}, s)
    out[name] = [tensors if len(tensors) < 10 else len(tensors), s.at, s.sum.hexdigest(), s.gap]
print(json.dumps(out, indent=1))
