"""views.py save FOLDER: models in every format that has views, by its own library.
views.py check FOLDER: the views hold what those libraries read, bit for bit."""
import os
import sys

import h5py
import numpy as np
import torch
from safetensors import safe_open

what, folder = sys.argv[1:]
rng = np.random.default_rng(7)
arrays = {
    "embed.weight": rng.standard_normal((300, 64)).astype("float32"),
    "größe/x": rng.integers(-9, 9, (7, 5)),
    "half": rng.standard_normal(1000).astype("float16"),
    "empty": np.zeros((0, 3), "float32"),
    "mask": rng.integers(0, 2, 33).astype(bool),
}


def path(name):
    return os.path.join(folder, name)


def keras_model():
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    keras.utils.set_random_seed(3)
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, name="first"), keras.layers.Dense(2, name="second")])


def h5_arrays(f):
    found = {}
    f.visititems(lambda name, d: found.update({name: d[()]}) if isinstance(d, h5py.Dataset) else None)
    return found


def save():
    import gguf
    import onnx
    from onnx import helper, numpy_helper
    np.savez(path("arrays.npz"), **arrays)
    np.save(path("one.npy"), np.asfortranarray(arrays["embed.weight"]))
    with h5py.File(path("plain.h5"), "w") as f:
        for name, a in arrays.items():
            if a.size:
                f.create_dataset("group/" + name, data=a)
    model = keras_model()
    model.save(path("model.keras"))
    model.save_weights(path("w.weights.h5"))
    w = gguf.GGUFWriter(path("llama.gguf"), "llama")
    w.add_context_length(8)
    for name in ("embed.weight", "half"):
        w.add_tensor(name, arrays[name])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    inits = [numpy_helper.from_array(a, n) for n, a in arrays.items() if a.size]
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [300, 64])
    graph = helper.make_graph([helper.make_node("Identity", ["embed.weight"], ["y"])], "g", [], [y], inits)
    onnx.save(helper.make_model(graph), path("net.onnx"))


def expected():
    import gguf
    import onnx
    import zipfile
    from onnx import numpy_helper
    yield "arrays", dict(np.load(path("arrays.npz")))
    yield "one", {"arr_0": np.load(path("one.npy"))}
    with h5py.File(path("plain.h5")) as f:
        yield "plain", h5_arrays(f)
    with h5py.File(path("w.weights.h5")) as f:
        yield "w.weights", h5_arrays(f)
    with zipfile.ZipFile(path("model.keras")) as z, z.open("model.weights.h5") as inner, h5py.File(inner) as f:
        yield "model", {"model.weights.h5/" + n: a for n, a in h5_arrays(f).items()}
    yield "llama", {t.name: np.array(t.data) for t in gguf.GGUFReader(path("llama.gguf")).tensors}
    yield "net", {t.name: numpy_helper.to_array(t) for t in onnx.load(path("net.onnx")).graph.initializer}


def check():
    for stem, want in expected():
        assert want, stem
        for framework in ("np", "pt"):
            with safe_open(path(stem + ".safetensors"), framework=framework) as f:
                assert sorted(f.keys()) == sorted(want), (stem, list(f.keys()), list(want))
                for name, a in want.items():
                    got = f.get_tensor(name)
                    got = got.numpy() if isinstance(got, torch.Tensor) else got
                    assert got.dtype == a.dtype and got.shape == a.shape, (stem, name, got.dtype, a.dtype, got.shape, a.shape)
                    assert got.tobytes() == np.ascontiguousarray(a).tobytes(), (stem, name)


{"save": save, "check": check}[what]()
