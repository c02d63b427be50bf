#!/usr/bin/env python3
"""Write two steps of a training as Orbax does, by TensorStore: zarr arrays, each a zstd frame, in OCDBT.

    python3 orbax.py [FOLDER]           # needs numpy and tensorstore; FOLDER is this one by default

File names and the order of the arrays differ from run to run, so what exists is kept.
"""

import asyncio
import os
import sys

import numpy as np
import tensorstore as ts

OUT = os.path.join(os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(__file__)), "orbax")


async def main():
    rng = np.random.RandomState(0)
    arrays = {"layer%d/kernel" % i: rng.randn(16, 80).astype("f4") for i in range(6)}
    arrays.update({"layer%d/bias" % i: rng.randn(80).astype("f4") for i in range(6)})
    for step in range(2):
        context = ts.Context()
        if step:
            arrays = {k: a + 1 if "bias" in k or "layer5" in k else a for k, a in arrays.items()}

        async def save(name, a):
            store = await ts.open({
                "driver": "zarr", "create": True,
                "kvstore": {"driver": "ocdbt", "base": "file://%s/s%d/" % (OUT, step), "path": name + "/"},
                "metadata": {"compressor": {"id": "zstd", "level": 1}, "shape": a.shape, "chunks": a.shape, "dtype": "<f4"},
            }, context=context)
            await store.write(a)

        await asyncio.gather(*[save(k, a) for k, a in arrays.items()])


if __name__ == "__main__":
    if not os.path.exists(OUT):
        asyncio.run(main())
