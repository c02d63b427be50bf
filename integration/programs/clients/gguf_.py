"""GGUF's writer, and its reader, which maps the file; metadata changed in place through a writable mapping."""
import os

import gguf
import numpy as np
from state import arrays

EXACT = True


def save(dir, version, size):
    w = gguf.GGUFWriter(os.path.join(dir, "model.gguf"), "llama")
    w.add_name("random")
    w.add_uint32("ckptfs.version", version)
    w.add_array("tokenizer.ggml.tokens", [f"t{i}" for i in range(100)])
    for k, v in arrays(version, size).items():
        if k != "step":
            w.add_tensor(k, v)
            w.add_tensor(k + ".half", v.astype(np.float16))
    q = arrays(version, size)["layer3/weight"]
    w.add_tensor("quantised", gguf.quants.quantize(q, gguf.GGMLQuantizationType.Q8_0),
                 raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def saver(dir, version, size):
    arrays(version, size)
    return lambda: save(dir, version, size)


def load(dir):
    r = gguf.GGUFReader(os.path.join(dir, "model.gguf"))
    return {t.name: np.array(t.data) for t in r.tensors} | {
        "fields": sorted(r.fields), "version": int(r.fields["ckptfs.version"].parts[-1][0])}


def change(dir, version, size):
    r = gguf.GGUFReader(os.path.join(dir, "model.gguf"), "r+")
    r.fields["ckptfs.version"].parts[-1][0] = version
    r.tensors[0].data[0] = version
