"""orbax_arrays.py FOLDER: one tree, sharded over four devices, saved by Orbax in each way that it has; and what it is, as FOLDER/truth.npz."""
import itertools
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

folder = sys.argv[1]
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
rng = np.random.RandomState(0)


def sharded(a, *by):
    return jax.device_put(a, NamedSharding(mesh, PartitionSpec(*by)))


w = rng.randn(64, 96).astype("f4")
tree = {
    "w": sharded(w, "x", "y"), "rows": sharded(w, "x", None), "columns": sharded(w, None, ("x", "y")), "one": jnp.asarray(w),
    "cube": sharded(rng.randn(8, 6, 10).astype("f4"), None, "x", "y"), "bf16": jnp.asarray(w, jnp.bfloat16), "zeros": jnp.zeros((33, 7)),
    "scalar": np.float64(2.5), "half": jnp.ones(3, jnp.float16), "flags": jnp.array([True, False]), "complex": jnp.array([1 + 2j], jnp.complex64),
    "fp8": jnp.ones(5, jnp.float8_e4m3fn), "short": np.arange(5, dtype=np.uint16), "int4": jnp.ones(6, jnp.int4),
}
for ocdbt, zarr3, compressed, chunk in itertools.product((True, False), (True, False), (True, False), (None, 1000)):
    name = "_".join(("ocdbt" if ocdbt else "files", "3" if zarr3 else "2", "zstd" if compressed else "raw", "chunked" if chunk else "whole"))
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3, use_compression=compressed)
    args = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=chunk), tree) if chunk else None
    ocp.Checkpointer(ocp.CompositeCheckpointHandler(state=handler)).save(os.path.join(folder, name), ocp.args.Composite(state=ocp.args.PyTreeSave(tree, save_args=args)))
del tree["int4"]
np.savez(os.path.join(folder, "truth.npz"), **{k: np.asarray(a).view(np.uint8) if np.asarray(a).dtype.kind == "V" else np.asarray(a) for k, a in tree.items()})
