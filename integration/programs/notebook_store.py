"""notebook_store.py PACKAGE MOUNT: saves the runs that notebook.py looks at: four steps, a model that was declared another's child, one that was merged, names that HTML could
be made of, tables."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pandas
from safetensors.numpy import save_file

sys.path.insert(0, sys.argv[1])
import ckptfs  # noqa: E402

root = Path(sys.argv[2])
rng = np.random.default_rng(1)
body, head = rng.standard_normal((256, 256), dtype=np.float32), rng.standard_normal((8, 64), dtype=np.float32)
bits = np.ones((32, 32), dtype=np.float32)


def save(step, tensors, metrics=None, **lineage):
    ckptfs.record(root / "runs" / step, metrics=metrics, **lineage)
    save_file(tensors, root / "runs" / step / "model.safetensors")


for step, loss in ((1, 1.0), (2, 0.5), (3, 0.3), (10, 0.1)):
    tensors = {"body": body, "head": head, "bits": bits, "gone" if step == 1 else "new": rng.standard_normal((16, 16))}
    save(f"a/{step}", tensors, {"val_loss": loss, "state": step} | ({"acc": float("inf")} if step == 2 else {}))
    head, bits = head.copy(), bits.copy()
    head[0] += np.float32(0.01)
    bits[0, 0] = np.inf
save("b/1", {"body": body, "head": head + 1}, {"val_loss": 0.2}, parent="runs/a/10")
save("<script>alert(1)<_script>&\"'/step-1", {"body": body * 2, "head": head + 2}, parent="runs/a/2", merged_from=["runs/a/2", "runs/a/3"])

# A torch file has a view.
import torch  # noqa: E402

torch.save({"w": torch.arange(100000.0)}, root / "runs/b/1/other.pt")
table = pandas.DataFrame({"x": range(1000), "y": [i / 8 for i in range(1000)]})
table.to_csv(root / "eval.csv", index=False)
table.to_parquet(root / "eval.parquet")
(root / "same").mkdir()
(root / "same" / "same").write_bytes(b"same")
os.symlink("runs/a/1/model.safetensors", root / "link")
os.symlink("none", root / "nowhere")
print(json.dumps("ok"))
