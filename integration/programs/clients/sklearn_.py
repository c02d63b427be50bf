"""scikit-learn by joblib, plain, compressed and mapped, and by pickle with out-of-band buffers."""
import functools
import os
import pickle

import joblib
import numpy as np
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from state import arrays

EXACT = True


@functools.lru_cache(maxsize=2)
def model(version, size):
    x = np.concatenate([v for k, v in arrays(version, size).items() if k != "step"])
    p = make_pipeline(StandardScaler(), KNeighborsRegressor(3, algorithm="brute")).fit(x, x[:, :2])
    return {"pipeline": p, "ridge": Ridge().fit(x[:50], x[:50, 0]), "version": version}


def save(dir, version, size):
    m = model(version, size)
    joblib.dump(m, os.path.join(dir, "model.joblib"))
    joblib.dump(m["ridge"], os.path.join(dir, "ridge.joblib.gz"), compress=("gzip", 3))
    with open(os.path.join(dir, "model.pkl"), "wb") as f:
        pickle.dump(m, f, protocol=5)


def saver(dir, version, size):
    m = model(version, size)
    return lambda: joblib.dump(m, os.path.join(dir, "model.joblib"))


def held(m):
    return {"version": m["version"], "x": m["pipeline"][-1]._fit_X, "y": m["pipeline"][-1]._y, "mean": m["pipeline"][0].mean_,
            "coef": m["ridge"].coef_}


def load(dir):
    return held(joblib.load(os.path.join(dir, "model.joblib")))


def ways(dir):
    yield "mapped", held(joblib.load(os.path.join(dir, "model.joblib"), mmap_mode="r"))
    yield "compressed", joblib.load(os.path.join(dir, "ridge.joblib.gz")).coef_
    with open(os.path.join(dir, "model.pkl"), "rb") as f:
        yield "pickle", held(pickle.load(f))
