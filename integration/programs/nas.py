"""nas.py FOLDER CANDIDATES RETIRE CKPTFS [WIDTH]: a network architecture search by aged evolution with transfer, on a ckptfs mount, and beside it the same candidates as HDF5
files in memory, of which only the sizes count. Each candidate begins with the weights of the stored model that it has most in common with, and what is left of
it is trained, that is, made new; what training takes, packing has time for: `ckptfs sync` stands for that. With RETIRE 1 a candidate that leaves the population is retired. Prints JSON: what HDF5 files of all, and of those that are left, take, tensors
transferred, seconds of a match, its transfer and its save."""
import io
import json
import shutil
import statistics
import subprocess
import sys
import time

import h5py
import numpy as np
from safetensors.numpy import load_file, save_file

import ckptfs

folder, candidates, retire = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1"
CKPTFS = sys.argv[4]
WIDTH = int(sys.argv[5]) if len(sys.argv) > 5 else 128
POPULATION, SAMPLE, GENES, CHOICES = 100, 10, 33, 12
rng = np.random.default_rng(7)


def architecture(genome):
    """A chain of blocks, some with a skip around them, as GRAPH.json; and its tensors' shapes."""
    nodes, shapes, last = [{"id": "x", "op": "Input", "cfg": {"shape": [None, WIDTH]}}], {}, "x"

    def layer(name, op, cfg, inputs, comm=False, **params):
        node = {"id": name, "op": op, "cfg": cfg, "in": inputs}
        if comm:
            node["comm"] = True
        if params:
            node["params"] = [{"name": f"{name}.{k}", "dtype": "F32", "shape": list(s)} for k, s in params.items()]
            shapes.update({f"{name}.{k}": s for k, s in params.items()})
        nodes.append(node)
        return name

    for i, gene in enumerate(genome):
        before = last
        last = layer(f"d{i}", "Dense", {"init": int(gene) % 4}, [last], weight=(WIDTH, WIDTH), bias=(WIDTH,))
        last = layer(f"a{i}", "Activation", {"f": ["relu", "tanh", "swish"][gene // 4]}, [last])
        if gene % 3 == 0:
            last = layer(f"o{i}", "Dropout", {"rate": 0.1}, [last])
        if gene % 2 == 0:
            last = layer(f"s{i}", "Add", {}, [before, last], comm=True)
    layer("head", "Dense", {"units": 2}, [last], weight=(2, WIDTH), bias=(2,))
    return {"v": 1, "nodes": nodes}, shapes


def hdf5(tensors):
    out = io.BytesIO()
    with h5py.File(out, "w") as f:
        for name, t in tensors.items():
            f.create_dataset(name, data=t)
    return len(out.getbuffer())


population, sizes, took, transferred, total = [], {}, {"match": [], "transfer": [], "save": []}, 0, 0
for number in range(candidates):
    if len(population) < POPULATION:
        genome = rng.integers(0, CHOICES, GENES)
    else:
        best = max((population[i] for i in rng.integers(0, len(population), SAMPLE)), key=lambda c: c["quality"])
        genome = best["genome"].copy()
        i = rng.integers(0, GENES)
        genome[i] = (genome[i] + rng.integers(1, CHOICES)) % CHOICES
    arch, shapes = architecture(genome)

    start = time.perf_counter()
    m = ckptfs.match(arch, folder)
    took["match"].append(time.perf_counter() - start)
    start = time.perf_counter()
    tensors = {}
    if m:
        stored = load_file(m.path)
        tensors = {new: stored[old] for new, old in m.tensors.items()}
        transferred += len(tensors)
    took["transfer"].append(time.perf_counter() - start)
    for name, shape in shapes.items():
        if name not in tensors:
            tensors[name] = rng.standard_normal(shape, dtype=np.float32)
    total += len(tensors)

    start = time.perf_counter()
    step = f"{folder}/runs/nas/{number}"
    quality = float(sum((int(g) * 7 + i * 3) % CHOICES for i, g in enumerate(genome)) + rng.standard_normal())
    ckptfs.record(step, metrics={"quality": quality}, parent=m)
    with open(f"{step}/arch.json", "w", encoding="utf-8") as f:
        json.dump(arch, f)
    save_file({n: tensors[n] for n in shapes}, f"{step}/model.safetensors")
    took["save"].append(time.perf_counter() - start)
    subprocess.run([CKPTFS, "sync", folder], check=True, stdout=subprocess.DEVNULL)
    sizes[number] = hdf5(tensors)

    population.append({"genome": genome, "quality": quality, "number": number})
    if len(population) > POPULATION:
        oldest = population.pop(0)
        if retire:
            shutil.rmtree(f"{folder}/runs/nas/{oldest['number']}")
print(json.dumps({"all": sum(sizes.values()), "left": sum(sizes[c["number"]] for c in population), "transferred": transferred / total,
                  **{k: {"median": statistics.median(v), "last": statistics.median(v[-100:])} for k, v in took.items()}}))
