"""pyarrow: Feather, Arrow IPC as file and stream, Parquet; read by mapping."""
import os

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
from state import arrays

EXACT = True


def table(version, size):
    a = arrays(version, size)
    return pa.table({k: pa.array(v.reshape(-1)) for k, v in a.items() if k != "step"}).replace_schema_metadata({"v": str(version)})


def save(dir, version, size):
    t = table(version, size)
    pa.feather.write_feather(t, os.path.join(dir, "t.feather"), compression="uncompressed")
    pa.feather.write_feather(t, os.path.join(dir, "t.lz4.feather"), compression="lz4")
    pa.parquet.write_table(t, os.path.join(dir, "t.parquet"), compression="zstd")
    with pa.OSFile(os.path.join(dir, "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, t.schema) as w:
        w.write_table(t, max_chunksize=10_000)
    with pa.OSFile(os.path.join(dir, "t.arrows"), "wb") as sink, pa.ipc.new_stream(sink, t.schema) as w:
        w.write_table(t)


def saver(dir, version, size):
    t = table(version, size)
    return lambda: pa.feather.write_feather(t, os.path.join(dir, "t.feather"), compression="uncompressed")


def columns(t):
    return {k: t[k].combine_chunks().to_numpy(zero_copy_only=False) for k in t.column_names} | {"v": t.schema.metadata[b"v"]}


def load(dir):
    return columns(pa.feather.read_table(os.path.join(dir, "t.feather"), memory_map=True))


def ways(dir):
    yield "lz4", columns(pa.feather.read_table(os.path.join(dir, "t.lz4.feather")))
    yield "parquet", columns(pa.parquet.read_table(os.path.join(dir, "t.parquet"), memory_map=True))
    with pa.memory_map(os.path.join(dir, "t.arrow")) as f:
        yield "file", columns(pa.ipc.open_file(f).read_all())
    with pa.OSFile(os.path.join(dir, "t.arrows")) as f:
        yield "stream", columns(pa.ipc.open_stream(f).read_all())
