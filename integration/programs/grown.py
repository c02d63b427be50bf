"""grown.py KIND ROUNDS OUT: trains a boosted model of KIND to ROUNDS rounds, saves it at the last eleven multiples of ten, as
OUT/<rounds>.<ext>, and prints their paths as JSON. Without arguments it prints the kinds."""
import json
import pickle
import sys
import warnings

warnings.simplefilter("ignore")


def estimators(rounds, dump, x, y):
    from sklearn.ensemble import GradientBoostingClassifier
    model = GradientBoostingClassifier(warm_start=True, max_depth=3, random_state=0)
    for n in rounds:
        model.set_params(n_estimators=n).fit(x, y)
        yield n, lambda path: dump(model, path)


def joblib_(rounds, x, y):
    import joblib
    return estimators(rounds, joblib.dump, x, y)


def pickle_(rounds, x, y):
    def dump(model, path):
        with open(path, "wb") as f:
            pickle.dump(model, f)
    return estimators(rounds, dump, x, y)


def xgb(rounds, x, y):
    import xgboost
    data, booster, last = xgboost.DMatrix(x, y), None, 0
    for n in rounds:
        booster = xgboost.train({"max_depth": 3, "nthread": 2, "objective": "binary:logistic"}, data, n - last, xgb_model=booster)
        last = n
        yield n, booster.save_model


KINDS = {"joblib": (joblib_, "joblib"), "pickle": (pickle_, "pkl"), "XGBoost JSON": (xgb, "json"), "XGBoost UBJ": (xgb, "ubj")}


def main():
    import numpy as np
    kind, last, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((800, 10))
    y = (x[:, 0] + x[:, 1] ** 2 + rng.standard_normal(800) > 1).astype(int)
    train, ext = KINDS[kind]
    paths = []
    for n, save in train(range(last - 100, last + 1, 10), x, y):
        paths.append(f"{out}/{n}.{ext}")
        save(paths[-1])
    print(json.dumps(paths))


if len(sys.argv) < 4:
    print(json.dumps(list(KINDS)))
else:
    main()
