"""XGBoost: models as JSON and UBJ, and the state of a booster by pickle."""
import os
import pickle

import numpy as np
import xgboost as xgb

EXACT = True
trained = {}


def booster(version, size):
    """Some 100 bytes of JSON a node; the trees are grown once a version."""
    if (version, size) not in trained:
        g = np.random.default_rng(version)
        x, y = g.standard_normal((3000, 16)), g.standard_normal(3000)
        rounds = max(2, min(400, size // 80_000))
        trained[version, size] = xgb.train({"max_depth": 9, "nthread": 1, "seed": version}, xgb.DMatrix(x, y), rounds)
    return trained[version, size]


def save(dir, version, size):
    b = booster(version, size)
    b.save_model(os.path.join(dir, "model.json"))
    b.save_model(os.path.join(dir, "model.ubj"))
    with open(os.path.join(dir, "booster.pkl"), "wb") as f:
        pickle.dump(b, f)


def saver(dir, version, size):
    b = booster(version, size)
    return lambda: b.save_model(os.path.join(dir, "model.ubj"))


def predict(b):
    return b.predict(xgb.DMatrix(np.random.default_rng(0).standard_normal((50, 16)), nthread=1))


def load(dir):
    b = xgb.Booster(model_file=os.path.join(dir, "model.ubj"))
    return {"raw": bytes(b.save_raw("ubj"))}


def ways(dir):
    yield "ubj", predict(xgb.Booster(model_file=os.path.join(dir, "model.ubj")))
    yield "json", predict(xgb.Booster(model_file=os.path.join(dir, "model.json")))
    with open(os.path.join(dir, "booster.pkl"), "rb") as f:
        yield "pickle", predict(pickle.load(f))
