#!/usr/bin/env python3
"""Write two steps of a training as Orbax does, by TensorStore: zarr arrays, each a zstd frame, in OCDBT. And checkpoints by Orbax itself:
ocdbt, with zarr 2 in a database; zarr3, with zarr 3; loose, with zarr 2 in files; of each the step after it, in which one array has changed; wide, with a tree of several levels.

    python3 ocdbt.py [FOLDER]           # needs numpy, tensorstore, jax and orbax-checkpoint; FOLDER is this one by default

File names and the order of the arrays differ from run to run, so what exists is kept.
"""

import asyncio
import glob
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


def checkpoints():
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax.numpy as jnp
    import orbax.checkpoint as ocp

    tree = {
        "params": {"layer.0": {"kernel": jnp.arange(600, dtype=jnp.bfloat16).reshape(20, 30), "bias": jnp.zeros(30)},
                   "counts": [jnp.arange(5), np.int64(3)]},
        "step": 7, "a/b": jnp.ones(2, jnp.float16), "nothing": {},
    }
    kinds = {"ocdbt": {}, "zarr3": {"use_zarr3": True}, "loose": {"use_ocdbt": False}}
    for name, how in [*kinds.items(), *((name + "-next", how) for name, how in kinds.items())]:
        if name.endswith("-next"):  # a step later
            tree["params"]["layer.0"]["kernel"] = jnp.arange(1, 601, dtype=jnp.bfloat16).reshape(20, 30)
        folder = os.path.join(OUT, name)
        if not os.path.exists(folder):
            handler = ocp.PyTreeCheckpointHandler(**how)
            ocp.Checkpointer(ocp.CompositeCheckpointHandler(state=handler)).save(folder, ocp.args.Composite(state=ocp.args.PyTreeSave(tree)))
            for path in glob.glob(folder + "/**/commit_success.txt", recursive=True):
                os.remove(path)  # it has the folder's path in it


async def wide():
    """A B+tree with inner nodes: nodes are split at 2 KB."""
    folder = os.path.join(OUT, "wide")
    if not os.path.exists(folder):
        store = await ts.KvStore.open({
            "driver": "ocdbt", "base": "file://%s/" % folder,
            "config": {"max_decoded_node_bytes": 2000, "max_inline_value_bytes": 30, "compression": None},
        })
        async with ts.Transaction() as t:
            await asyncio.gather(*[store.with_transaction(t).write("params.layer%03d.w/.zarray" % i, b'{"shape":[%d],"dtype":"<f4"%s}' % (i, b" " * (i % 9))) for i in range(300)])


if __name__ == "__main__":
    if not os.path.exists(OUT):
        asyncio.run(main())
    checkpoints()
    asyncio.run(wide())
