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


if __name__ == "__main__":
    tree_files()
    with open(os.path.join(OUT, "truth_models.json"), "w", encoding="utf-8") as f:
        json.dump(truth, f, indent=1, sort_keys=True, ensure_ascii=False)
        f.write("\n")
