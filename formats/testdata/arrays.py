#!/usr/bin/env python3
"""Write the fixtures of the array formats with the real libraries.

    python3 arrays.py [FOLDER]          # needs numpy, torch, safetensors; FOLDER is this one by default

  numpy/*            np.save, np.savez, np.savez_compressed
  archive/*          tarfile and zipfile over files of other formats
  same/*             one set of tensors in several formats and orders
  ids.json           the artifact ids of these and of a large tensor, by an implementation of its own
  truth_arrays.json  what lies in each file, as in truth.json

All files are deterministic.
"""

import base64
import hashlib
import io
import itertools
import json
import os
import struct
import sys
import tarfile
import zipfile

import ml_dtypes
import numpy as np

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
truth = {}

CODES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "float16": "F16", "int32": "I32",
    "uint32": "U32", "float32": "F32", "int64": "I64", "uint64": "U64", "float64": "F64", "complex64": "C64",
    "complex128": "C128", "bfloat16": "BF16",
}


def describe(a):
    raw = np.ascontiguousarray(a).tobytes()
    return {"dtype": CODES[a.dtype.name], "shape": list(a.shape), "sha256": hashlib.sha256(raw).hexdigest()}


def write(name, data, tensors):
    path = os.path.join(OUT, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)
    truth[name] = {n: describe(np.asarray(a)) for n, a in tensors.items()}


def ramp(*shape, dtype="float32"):
    return np.arange(int(np.prod(shape)), dtype="float32").reshape(shape).astype(dtype)


def npy(*arrays, **kwargs):
    buf = io.BytesIO()
    for a in arrays:
        np.lib.format.write_array(buf, np.asanyarray(a), **kwargs) if kwargs else np.save(buf, a)
    return buf.getvalue()


def npz(save=np.savez, **arrays):
    buf = io.BytesIO()
    save(buf, **arrays)
    return buf.getvalue()


def numpy_files():
    for t in CODES:
        if t != "bfloat16":
            write("numpy/%s.npy" % t, npy(ramp(2, 3, dtype=t)), {"arr_0": ramp(2, 3, dtype=t)})
    f = np.asfortranarray(ramp(3, 4))
    write("numpy/fortran.npy", npy(f), {"arr_0": f})
    write("numpy/scalar.npy", npy(np.float64(2.5)), {"arr_0": np.float64(2.5)})
    write("numpy/empty.npy", npy(ramp(3, 0, 2)), {"arr_0": ramp(3, 0, 2)})
    for v in ((1, 0), (2, 0), (3, 0)):
        write("numpy/version%d.npy" % v[0], npy(ramp(4), version=v), {"arr_0": ramp(4)})
    write("numpy/two.npy", npy(ramp(3), ramp(2, 2, dtype="int64")), {"arr_0": ramp(3), "arr_1": ramp(2, 2, dtype="int64")})
    for name, a in {
        "big_endian": ramp(4).astype(">f4"), "structured": np.zeros(3, dtype=[("x", "<f4"), ("y", "<i4")]),
        "text": np.array(["ab", "cde"]), "bytes": np.array([b"ab", b"cde"]), "bfloat16": ramp(4, dtype=ml_dtypes.bfloat16),
        "datetime": np.array(["2026-01-01"], dtype="datetime64[ns]"), "longdouble": ramp(2, dtype=np.longdouble),
        "object": np.array([1, "a", None], dtype=object),
    }.items():
        write("numpy/%s.npy" % name, npy(a), {})
    arrays = {"b": ramp(2, 3), "a": ramp(5, dtype="int64"), "größe.x/y": ramp(1), "empty": ramp(0), "scalar": np.array(7)}
    write("numpy/several.npz", npz(**arrays), arrays)
    write("numpy/deflated.npz", npz(np.savez_compressed, **arrays), {})
    write("numpy/mixed.npz", npz(a=ramp(4), s=np.zeros(2, dtype=[("x", "<f4")])), {"a": ramp(4)})


def archive_files():
    files = {
        "a/x.npy": npy(ramp(3, 5)), "readme.txt": b"nothing to see\n" * 20, "b.npz": npz(k=ramp(7), m=ramp(2)),
    }
    names = {"a/x.npy/arr_0": ramp(3, 5), "b.npz/k": ramp(7), "b.npz/m": ramp(2)}

    def zipped(files):
        buf = io.BytesIO()
        with zipfile.ZipFile(buf, "w") as z:
            for n, p in files.items():
                z.writestr(zipfile.ZipInfo(n), p)
        return buf.getvalue()

    def tarred(files, fmt):
        buf = io.BytesIO()
        with tarfile.open(fileobj=buf, mode="w", format=fmt) as t:
            for n, p in files.items():
                info = tarfile.TarInfo(n)
                info.size = len(p)
                t.addfile(info, io.BytesIO(p))
        return buf.getvalue()

    write("archive/files.zip", zipped(files), names)
    write("archive/files.tar", tarred(files, tarfile.PAX_FORMAT), names)
    write("archive/gnu.tar", tarred({"n" * 150 + "/x.npy": npy(ramp(3))}, tarfile.GNU_FORMAT),
          {"n" * 150 + "/x.npy/arr_0": ramp(3)})
    write("archive/nested.tar", tarred({"inner.zip": zipped(files)}, tarfile.USTAR_FORMAT),
          {"inner.zip/" + n: a for n, a in names.items()})
    write("archive/text.zip", zipped({"readme.txt": b"x" * 100}), {})


def gguf_files():
    import gguf

    def model(name, tensors, align=None, **kwargs):
        path = os.path.join(OUT, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        w = gguf.GGUFWriter(path, "llama", **kwargs)
        if align:
            w.add_custom_alignment(align)
        w.add_context_length(8)
        w.add_token_list(["<s>", "größe", ""])
        w.add_token_scores([0.5, 1.0, -1.0])
        w.add_bool("flag", True)
        for n, (a, q) in tensors.items():
            w.add_tensor(n, a if q is None else gguf.quants.quantize(a, q), raw_dtype=q)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        truth[name] = {}
        for n, (a, q) in tensors.items():
            raw = a if q is None else gguf.quants.quantize(a, q)
            truth[name][n] = {"dtype": CODES[a.dtype.name] if q is None else q.name, "shape": list(a.shape),
                              "sha256": hashlib.sha256(raw.tobytes()).hexdigest()}

    t = gguf.GGMLQuantizationType
    plain = {"a.weight": (ramp(3, 4), None), "b": (ramp(5, dtype="float16"), None), "i": (ramp(7, dtype="int32"), None),
             "wide": (ramp(2, 3, 2, dtype="float64"), None)}
    model("gguf/plain.gguf", plain)
    model("gguf/aligned.gguf", plain, align=256)
    model("gguf/quantised.gguf", {q.name: (ramp(2, 256), q) for q in (
        t.Q4_0, t.Q4_1, t.Q5_0, t.Q5_1, t.Q8_0, t.BF16, t.TQ1_0, t.TQ2_0)} | {"norm": (ramp(8), None)})


def hdf5_files():
    import h5py

    x = ramp(3, 4)
    types = {t: ramp(2, 3, dtype=t) for t in CODES if t not in ("bfloat16", "complex64", "complex128")}
    big = ramp(64, 64)

    def model(name, fill, names, **kwargs):
        buf = io.BytesIO()
        with h5py.File(buf, "w", **kwargs) as f:
            fill(f)
        write(name, buf.getvalue(), names)

    def groups(f):
        g = f.create_group("model_weights")
        g.attrs["backend"] = "torch"
        for i in range(12):
            g.create_group("dense_%d" % i)["kernel:0"] = x + i
        f["top"] = x
        f["linked"] = f["top"]
        f["soft"] = h5py.SoftLink("/top")
        f["scalar"] = np.float64(2.5)
        f["empty"] = ramp(0, 3)

    names = {"model_weights/dense_%d/kernel:0" % i: x + i for i in range(12)}
    names.update({"top": x, "linked": x, "scalar": np.float64(2.5), "empty": ramp(0, 3)})
    model("hdf5/groups.h5", groups, names)
    # Twelve links make a fractal heap there: one direct block.
    model("hdf5/groups_latest.h5", groups, names, libver="latest")
    # Here it has rows, and the tree of names levels.
    wide = {"%s%d" % ("n" * 60, i): ramp(1) + i for i in range(250)}
    model("hdf5/wide_latest.h5", lambda f: [f.create_dataset(n, data=a) for n, a in wide.items()], wide, libver="latest")
    model("hdf5/types.h5", lambda f: [f.create_dataset(n, data=a) for n, a in types.items()], types)

    def chunked(f):
        f.create_dataset("one", data=big, chunks=big.shape)
        f.create_dataset("many", data=big, chunks=(20, 64))
        f.create_dataset("packed", data=big, chunks=(64, 64), compression="gzip")
        f.create_dataset("unwritten", shape=(5,), dtype="f4")
        f.create_dataset("complex", data=ramp(3, dtype="complex64"))
        f.create_dataset("text", data="hello")
        f.create_dataset("swapped", data=ramp(3).astype(">f4"))
        f.create_dataset("plain", data=big)

    def pieces(name, array, *chunk):  # a tensor for each chunk that is stored as it is, called as Python slices it
        at = [[(i, min(i + c, n)) for i in range(0, n, c)] for n, c in zip(array.shape, chunk)]
        return {name + "[" + ",".join("%d:%d" % x for x in cell) + "]": array[tuple(slice(*x) for x in cell)] for cell in itertools.product(*at)}

    whole = {"one": big, "plain": big, **pieces("many", big, 20, 64)}
    model("hdf5/chunked.h5", chunked, whole)
    model("hdf5/chunked_latest.h5", chunked, whole, libver="latest")

    def indexes(f):
        f.create_dataset("pages", shape=(1030 * 16,), dtype="f4", chunks=(16,))[16:16 * 900] = 1
        f.create_dataset("gz", data=big, chunks=(16, 64), compression="gzip")
        f.create_dataset("grows", data=big, chunks=(20, 64), maxshape=(None, 64))
        f.create_dataset("grows2", data=big, chunks=(20, 64), maxshape=(None, None))
        early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        early.set_chunk((20, 64))
        early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        space = h5py.h5s.create_simple((64, 64))
        d = h5py.Dataset(h5py.h5d.create(f.id, b"implicit", h5py.h5t.IEEE_F32LE, space, dcpl=early))
        d[:] = big

    whole = {**pieces("grows", big, 20, 64), **pieces("grows2", big, 20, 64), **pieces("implicit", big, 20, 64)}
    model("hdf5/indexes.h5", indexes, whole, libver="latest")

    wide = ramp(70, 100)

    def cut(f):
        f.create_dataset("bare", data=wide, chunks=(32, 32))
        f.create_dataset("along0", data=wide, chunks=(32, 32), maxshape=(None, 100))
        f.create_dataset("along1", data=wide, chunks=(32, 32), maxshape=(70, None))
        f.create_dataset("along", data=wide, chunks=(32, 32), maxshape=(None, None))
        f.create_dataset("corner", data=wide, chunks=(80, 128), maxshape=(None, None))
        f.create_dataset("bounded", data=wide, chunks=(32, 32), maxshape=(200, 300))

    whole = {"corner": wide}
    for name in "bare", "along0", "along1", "along", "bounded":
        whole.update(pieces(name, wide, 32, 32))
    model("hdf5/pieces.h5", cut, whole)
    model("hdf5/pieces_latest.h5", cut, whole, libver="latest")

    small = ramp(8, 8)

    def growing(f):
        f.create_dataset("one", data=small, chunks=small.shape, maxshape=(None, 8))
        f.create_dataset("many", data=small + 1, chunks=small.shape, maxshape=(None, None))
        f.create_dataset("gz", data=small, chunks=(2, 8), maxshape=(None, 8), compression="gzip")
        f.create_dataset("gz2", data=small, chunks=(2, 8), maxshape=(None, None), compression="gzip")
        f.create_dataset("blocks", data=ramp(100), chunks=(1,), maxshape=(None,))
        f.create_dataset("tree", data=ramp(3, 50), chunks=(1, 1), maxshape=(None, None))

    def far(f):  # in the index block, data blocks, those of super blocks, and those that have pages
        far = f.create_dataset("far", shape=(200000 * 16,), dtype="f4", chunks=(16,), maxshape=(None,))
        for chunk in 0, 3, 4, 30, 100, 3000, 150000, 150001, 199999:
            far[16 * chunk:16 * chunk + 16] = chunk

    model("hdf5/growing.h5", growing, {"one": small, "many": small + 1}, libver="latest")
    model("hdf5/far.h5", far, {}, libver="latest")


def keras_files():
    import os
    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2, name="a"), keras.layers.Dense(1, name="b")])
    for i, w in enumerate(model.weights):
        w.assign(ramp(*w.shape) + i)
    w = [np.asarray(v) for v in model.get_weights()]
    plain = {"layers/dense/vars/0": w[0], "layers/dense/vars/1": w[1], "layers/dense_1/vars/0": w[2], "layers/dense_1/vars/1": w[3]}
    for name, names in ("hdf5/model.keras", {"model.weights.h5/" + n: a for n, a in plain.items()}), ("hdf5/model.weights.h5", plain):
        path = os.path.join(OUT, name)
        if not os.path.exists(path):  # has the time in it
            (model.save_weights if name.endswith("weights.h5") else model.save)(path)
        with open(path, "rb") as f:
            write(name, f.read(), names)


def onnx_files():
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    arrays = {t: ramp(2, 3, dtype=t) for t in CODES}
    arrays["größe"] = ramp(0, 4)
    floats = helper.make_tensor("floats", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])

    def model(name, initializers, names, nodes=(), **kwargs):
        graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"]), *nodes], "g", [x], [y], initializers)
        path = os.path.join(OUT, "onnx", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        onnx.save(helper.make_model(graph, producer_name="ckptfs"), path, **kwargs)
        with open(path, "rb") as f:
            write("onnx/" + name, f.read(), names)

    model("types.onnx", [numpy_helper.from_array(a, n) for n, a in arrays.items()] + [floats],
          {**arrays, "floats": np.array([1, 2, 3], dtype="float32")})
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(ramp(3), "k"))
    model("constant.onnx", [numpy_helper.from_array(ramp(4), "w")], {"w": ramp(4)}, [constant])
    model("external.onnx", [numpy_helper.from_array(ramp(600), "w")], {}, save_as_external_data=True, location="external.bin")


def arrow_files():
    import pyarrow as pa
    from pyarrow import feather, ipc

    table = pa.table({"a": np.random.RandomState(0).rand(1000), "b": np.arange(1000) * 7, "text": [str(i) * 3 for i in range(1100)][:1000]})

    def saved(how):
        buf = io.BytesIO()
        how(buf)
        return buf.getvalue()

    def stream(new, t):
        def how(buf):
            with new(buf, t.schema) as w:
                w.write_table(t)
        return how

    write("arrow/plain.feather", saved(lambda b: feather.write_feather(table, b, compression="uncompressed")), {})
    write("arrow/lz4.feather", saved(lambda b: feather.write_feather(table, b, compression="lz4")), {})
    write("arrow/table.arrow", saved(stream(ipc.new_file, table)), {})
    write("arrow/stream.arrow", saved(stream(ipc.new_stream, table)), {})
    write("arrow/reordered.arrow", saved(stream(ipc.new_stream, table.select(["text", "b", "a"]))), {})
    coded = pa.table({"d": table["text"].combine_chunks().dictionary_encode(), "a": table["a"]})
    write("arrow/dictionary.arrow", saved(stream(ipc.new_file, coded)), {})


def multihash(digest):
    return "b" + base64.b32encode(b"\x12\x20" + digest).decode().lower().rstrip("=")


def tree(stream):
    """The root over leaves of 4 MiB, halved while more than 512 KiB and there are fewer than 4096."""
    leaf = 4 << 20
    while leaf > 512 << 10 and -(-len(stream) // leaf) < 4096:
        leaf //= 2
    level = [hashlib.sha256(stream[i:i + leaf]).digest() for i in range(0, len(stream), leaf)]
    while len(level) > 1:
        level = [hashlib.sha256(b"".join(level[i:i + 2])).digest() if i + 1 < len(level) else level[i]
                 for i in range(0, len(level), 2)]
    return level[0] if level else hashlib.sha256(b"").digest()


def artifact_id(views):
    """views: name -> (key of the storage, its bytes, shape, strides, dtype, storage offset in bytes)."""
    index, placed, stream = {}, {}, b""
    for name in sorted(views, key=lambda n: n.encode()):
        key, raw, shape, stride, dtype, offset = views[name]
        if 0 in shape:
            index[name] = [len(stream), 0, shape, stride, dtype, 0]
            continue
        if key not in placed:
            stream += b"\0" * (-len(stream) % 8)
            placed[key] = len(stream)
            stream += raw
        index[name] = [placed[key], len(raw), shape, stride, dtype, offset]
    text = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    return "mi2:%s:%s" % (multihash(hashlib.sha256(text.encode()).digest()), multihash(tree(stream))), text


def row_major(shape):
    out, n = [], 1
    for d in reversed(shape):
        out.insert(0, n)
        n *= max(d, 1)
    return out


def same_files():
    import safetensors.numpy
    import torch

    arrays = {
        "b": ramp(3, dtype="float16"), "a": ramp(2, 3), "größe": ramp(5, dtype="uint8"), "empty": ramp(2, 0, 3), "z": ramp(7, dtype="int64"),
        "scalar": np.array(2.5, dtype="float64"), "tab\t\"q\"\\\x01": ramp(1, dtype="bool"), "\x7f": ramp(1),
    }
    plain, text = artifact_id({
        n: (n, a.tobytes(), list(a.shape), row_major(a.shape), "torch." + a.dtype.name, 0) for n, a in arrays.items()})
    ids = {"same": {"id": plain, "index": text}}

    write("same/model.safetensors", safetensors.numpy.save(arrays), arrays)
    buf = io.BytesIO()
    torch.save({n: torch.from_numpy(a.copy()) for n, a in arrays.items()}, buf)
    write("same/model.pt", buf.getvalue(), arrays)
    write("same/model.npz", npz(**arrays), arrays)
    for name, order in ("reversed", list(arrays)[::-1]), ("shuffled", sorted(arrays, key=lambda n: hashlib.md5(n.encode()).digest())):
        header, data = {}, b""
        for n in order:
            a = arrays[n]
            header[n] = {"dtype": CODES[a.dtype.name], "shape": list(a.shape), "data_offsets": [len(data), len(data) + a.nbytes]}
            data += a.tobytes()
        text = json.dumps(header).encode()
        write("same/%s.safetensors" % name, struct.pack("<Q", len(text)) + text + data, arrays)

    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    views = {"z.base": base, "a.rows": base[1:3], "t": base.t(), "none": base[:0], "own": torch.arange(3, dtype=torch.int16)}
    buf = io.BytesIO()
    torch.save(views, buf)
    raw = base.numpy().tobytes()
    write("same/views.pt", buf.getvalue(), {n: t.numpy() for n, t in views.items()})
    ids["views"] = dict(zip(("id", "index"), artifact_id({
        "z.base": ("0", raw, [4, 6], [6, 1], "torch.float32", 0), "a.rows": ("0", raw, [2, 6], [6, 1], "torch.float32", 24),
        "t": ("0", raw, [6, 4], [1, 6], "torch.float32", 0), "none": ("0", raw, [0, 6], [6, 1], "torch.float32", 0),
        "own": ("1", views["own"].numpy().tobytes(), [3], [1], "torch.int16", 0)})))

    large = ((np.arange(2_600_000, dtype=np.uint64) ** 2) % 251).astype(np.uint8).tobytes()
    small = bytes([1, 2, 3])
    ids["large"] = dict(zip(("id", "index"), artifact_id({
        "large": ("l", large, [len(large)], [1], "torch.uint8", 0), "a": ("a", small, [3], [1], "torch.uint8", 0)})))
    ids["nothing"] = dict(zip(("id", "index"), artifact_id({"e": ("e", b"", [2, 0, 3], [3, 3, 1], "torch.float32", 0)})))
    with open(os.path.join(OUT, "ids.json"), "w", encoding="utf-8") as f:
        json.dump(ids, f, indent=1, sort_keys=True, ensure_ascii=False)
        f.write("\n")


if __name__ == "__main__":
    numpy_files()
    archive_files()
    gguf_files()
    hdf5_files()
    keras_files()
    onnx_files()
    arrow_files()
    same_files()
    with open(os.path.join(OUT, "truth_arrays.json"), "w", encoding="utf-8") as f:
        json.dump(truth, f, indent=1, sort_keys=True, ensure_ascii=False)
        f.write("\n")
