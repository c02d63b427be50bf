#!/usr/bin/env python3
"""Write the fixtures of scikit-learn's, joblib's and XGBoost's files with the real libraries.

    python3 models.py [FOLDER]          # needs numpy, scikit-learn, joblib, xgboost; FOLDER is this one by default

  trees/*            XGBoost models
  sklearn/*          estimators, arrays and what lies around them, by pickle and joblib
  truth_models.json  what lies in each file, as in truth.json
"""

import hashlib
import io
import json
import os
import pickle
import sys

import joblib
import numpy as np
import xgboost as xgb
from sklearn.ensemble import GradientBoostingClassifier, RandomForestRegressor
from sklearn.neighbors import KNeighborsClassifier

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
CODES = {"float64": "F64", "float32": "F32", "int64": "I64", "uint8": "U8", "bool": "BOOL", "int32": "I32", "float16": "F16"}
truth = {}


def write(name, data, tensors=None):
    path = os.path.join(OUT, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)
    if tensors is not None:
        truth[name] = {n: {"dtype": CODES[a.dtype.name], "shape": list(a.shape),
                           "sha256": hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()} for n, a in tensors.items()}


def data(n=200):
    rng = np.random.RandomState(0)
    x = rng.randn(n, 4)
    return x, (x[:, 0] * x[:, 1] > 0).astype(int)


def tree_files():
    x, y = data()
    b = xgb.train({"max_depth": 2, "objective": "binary:logistic", "nthread": 1}, xgb.DMatrix(x, label=y), 3)
    for ext in ("json", "ubj"):
        write("trees/xgb." + ext, bytes(b.save_raw(ext)))


def saved(obj, how, **kwargs):
    buf = io.BytesIO()
    how(obj, buf, **kwargs)
    return buf.getvalue()


def sklearn_files():
    x, y = data()
    forest = RandomForestRegressor(n_estimators=2, random_state=0, n_jobs=1).fit(x, x[:, 0])
    boosted = GradientBoostingClassifier(n_estimators=3, random_state=0).fit(x, y)
    near = KNeighborsClassifier().fit(x, y)
    values = {"estimators_.%d.tree_.values" % i: e.tree_.value for i, e in enumerate(forest.estimators_)}
    values = {n: v for n, v in values.items() if v.nbytes >= 4096}
    for p in range(2, 6):
        write("sklearn/boosted%d.pkl" % p, pickle.dumps(boosted, p), {})
    write("sklearn/forest5.pkl", pickle.dumps(forest, 5), values)
    write("sklearn/forest.joblib", saved(forest, joblib.dump), values)
    write("sklearn/boosted.joblib", saved(boosted, joblib.dump), {})
    write("sklearn/compressed.joblib", saved(boosted, joblib.dump, compress=3), {})
    write("sklearn/near.joblib", saved(near, joblib.dump), {"_fit_X": x})

    big = np.arange(1200, dtype="float32").reshape(30, 40)
    arrays = {
        "c": big, "f": np.asfortranarray(big), "again": big, "list": [big.astype("int64"), {"deep": big > 3}],
        "big_endian": big.astype(">f4"), "structured": np.zeros(600, dtype=[("a", "<f8"), ("b", "<i4")]),
        "small": big[:2], "vector": np.arange(2000.0), "objects": np.array([[big + 1, "text"]], dtype=object),
        "times": np.zeros((10, 100), dtype="datetime64[ns]"), "bytes": bytes(range(256)) * 40, "half": big.astype("float16").reshape(2, -1, 4),
        "long": np.arange(40000.0),
    }
    names = {"c": big, "f": arrays["f"], "list.0": arrays["list"][0],
             "long": arrays["long"], "again": big}
    for p in 3, 4, 5:
        write("sklearn/arrays%d.pkl" % p, pickle.dumps({k: v for k, v in arrays.items() if k != "long"}, p),
              {n: a for n, a in dict(names, **{"objects.0": big + 1}).items() if n != "long"})
    write("sklearn/arrays.joblib", saved({k: v for k, v in arrays.items() if k != "long"}, joblib.dump),
          {n: a for n, a in names.items() if n != "long"})
    write("sklearn/two.pkl", pickle.dumps(big) + pickle.dumps([big + 1]), {"": big, "0": big + 1})
    write("sklearn/array.joblib", saved(big, joblib.dump), {"": big})


if __name__ == "__main__":
    tree_files()
    sklearn_files()
    with open(os.path.join(OUT, "truth_models.json"), "w", encoding="utf-8") as f:
        json.dump(truth, f, indent=1, sort_keys=True, ensure_ascii=False)
        f.write("\n")
