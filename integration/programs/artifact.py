"""artifact.py MOUNT FOLDER: the same tensors saved by three libraries, in another order, have one artifact id, which leads to a file
that holds them; others have others. Prints the id."""
import errno
import os
import sys

import numpy as np
import torch
from safetensors.torch import load_file, save_file

mount, folder = sys.argv[1:]
os.makedirs(folder, exist_ok=True)
g = torch.Generator().manual_seed(11)
tensors = {
    "embed.weight": torch.randn(2000, 300, generator=g), "größe": torch.arange(7), "half": torch.randn(33, generator=g).half(),
    "empty": torch.zeros(0, 3), "flag": torch.tensor([True, False, True]), "b.bytes": torch.arange(5, dtype=torch.uint8),
    "a.scalar": torch.tensor(2.5, dtype=torch.float64),
}
shuffled = {k: tensors[k] for k in sorted(tensors, key=lambda k: hash(k) % 97)}


def path(name):
    return os.path.join(folder, name)


def artifact(p):
    return os.getxattr(p, "user.ckptfs.artifact").decode()


if not os.path.exists(path("m.pt")):
    torch.save(tensors, path("m.pt"))
    torch.save(shuffled, path("shuffled.pt"))
    torch.save({"state": 3, "model": torch.nn.Linear(2, 2).state_dict()}, path("other.pt"))
    save_file(tensors, path("m.safetensors"), metadata={"epoch": "3"})
    np.savez(path("m.npz"), **{k: t.numpy() for k, t in tensors.items()})
    tied = torch.ones(5)
    torch.save({"a": tied, "b": tied}, path("tied.pt"))
    save_file({"a": tied, "b": tied.clone()}, path("tied.safetensors"))
    turned = tensors["embed.weight"].t()
    torch.save({"w": turned}, path("turned.pt"))
    np.savez(path("turned.npz"), w=turned.numpy())
    torch.save({"w": turned.contiguous()}, path("straight.pt"))
    save_file({"w": turned.contiguous()}, path("straight.safetensors"))
    torch.save({"w": turned[:10]}, path("slice.pt"))
    torch.save({"w": turned[:10].clone()}, path("slice_clone.pt"))
    save_file({"w": turned[:10].contiguous()}, path("slice.safetensors"))
    with open(path("text"), "w") as f:
        f.write("no tensors\n" * 10000)

ids = {name: artifact(path(name)) for name in sorted(os.listdir(folder)) if name != "text"}
one = ids["m.pt"]
assert len(one) == 117 and one.startswith("mi2:b"), one
assert {n for n, i in ids.items() if i == one} == {"m.pt", "m.npz", "m.safetensors", "shuffled.pt"}, ids
assert ids["tied.pt"] != ids["tied.safetensors"], "tied tensors are one storage in one and two in the other"
# Strides and storages are of the index: what is not row-major, or not all of its storage, is something else than a copy that is.
assert ids["turned.pt"] == ids["turned.npz"] != ids["straight.pt"] == ids["straight.safetensors"], ids
assert len({ids["slice.pt"], ids["slice_clone.pt"], ids["slice.safetensors"]}) == 3, ids
for p in (path("text"), folder):
    try:
        raise AssertionError(artifact(p))
    except OSError as e:
        assert e.errno == errno.ENODATA, e
assert "user.ckptfs.artifact" not in os.listxattr(path("m.pt"))
for change in (lambda: os.setxattr(path("m.pt"), "user.ckptfs.artifact", b"x"), lambda: os.removexattr(path("m.pt"), "user.ckptfs.artifact")):
    try:
        change()
        raise AssertionError("the attribute was changed")
    except OSError as e:
        assert e.errno == errno.EPERM, e
back = load_file(os.path.join(mount, ".ckptfs/artifacts", one + ".safetensors"))
assert back.keys() == tensors.keys()
for k, t in tensors.items():
    assert back[k].dtype == t.dtype and torch.equal(back[k], t), k
print(one)
