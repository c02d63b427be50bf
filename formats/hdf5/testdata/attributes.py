"""attributes.py: makes attributes-*.h5, with real h5py."""
import h5py
import numpy as np

long = "x" * 70_000
for libver in ("earliest", "latest"):
    with h5py.File(f"attributes-{libver}.h5", "w", libver=libver) as f:
        f.attrs["backend"] = "numpy"
        f.attrs["fixed"] = np.bytes_('{"fixed": "é"}'.encode())
        f.attrs["bytes"] = b'{"bytes": 1}'
        f.attrs["text"] = '{"text": "é"}'
        f.attrs["long"] = long
        f.attrs["number"] = 7
        f.attrs["several"] = ["a", "b"]
        f.create_dataset("a", data=np.zeros(4, np.float32))
