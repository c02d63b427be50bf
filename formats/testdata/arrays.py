#!/usr/bin/env python3
"""Write the fixtures of the array formats with the real libraries.

    python3 arrays.py [FOLDER]          # needs numpy, torch, safetensors; FOLDER is this one by default

  numpy/*            np.save, np.savez, np.savez_compressed
  archive/*          tarfile and zipfile over files of other formats
  truth_arrays.json  what lies in each file, as in truth.json

All files are deterministic.
"""

import hashlib
import io
import json
import os
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


if __name__ == "__main__":
    numpy_files()
    archive_files()
    with open(os.path.join(OUT, "truth_arrays.json"), "w", encoding="utf-8") as f:
        json.dump(truth, f, indent=1, sort_keys=True, ensure_ascii=False)
        f.write("\n")
