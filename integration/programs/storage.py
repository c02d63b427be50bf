"""storage.py SCENARIO OUT: saves a series of checkpoints below OUT with the real library, and prints for each save a line of JSON:
{"seconds": from the call to its return, "bytes": of the files}. Without arguments it prints the scenarios."""
import json
import os
import sys
import time
import warnings

warnings.simplefilter("ignore")
TREES = int(os.environ.get("CKPTFS_BENCH_TREES", "1000"))


def timed(path, save):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    start = time.perf_counter()
    save(path)
    seconds = time.perf_counter() - start
    size = os.path.getsize(path) if os.path.isfile(path) else sum(
        os.path.getsize(os.path.join(d, f)) for d, _, names in os.walk(path) for f in names)
    print(json.dumps({"seconds": seconds, "bytes": size}), flush=True)


def heads(out, runs):
    """ResNet-18, its backbone frozen: each run is (name, seed, learning rate, steps to save)."""
    import torch
    from torch import nn

    from resnet import ResNet18
    torch.manual_seed(0)
    model = ResNet18(10).eval()  # eval: batch statistics of a frozen backbone stay
    images, labels = torch.randn(16, 3, 64, 64), torch.randint(10, (16,))
    with torch.no_grad():
        features = model.features(images)
    for name, seed, lr, steps in runs:
        torch.manual_seed(seed)
        model.fc.reset_parameters()
        opt = torch.optim.Adam(model.fc.parameters(), lr=lr)
        for step in range(1, max(steps) + 1):
            opt.zero_grad()
            nn.functional.cross_entropy(model.fc(features), labels).backward()
            opt.step()
            if step in steps:
                timed(f"{out}/runs/{name}/{step}/model.pt", lambda p: torch.save(model.state_dict(), p))


def resnet20(out):
    heads(out, [("a", 0, 1e-3, range(1, 21))])


def seeds(out):
    heads(out, [(f"seed{i}", i, 1e-3, range(1, 11)) for i in range(4)])


def sweep(out):
    heads(out, [(f"lr{i}", 0, 1e-4 * 2**i, range(1, 11)) for i in range(8)])


def resume(out):
    heads(out, [("a", 0, 1e-3, (10, 20))])


def lora(out):
    """A frozen encoder with adapters of rank 8; all of it is saved."""
    import torch
    from torch import nn
    torch.manual_seed(0)
    base = nn.TransformerEncoder(nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True), 6, enable_nested_tensor=False).requires_grad_(False)
    adapters = nn.ModuleDict({f"{i}_{n}": nn.Linear(384, 8, bias=False) for i in range(6) for n in "ab"})
    opt, x = torch.optim.AdamW(adapters.parameters(), lr=1e-3), torch.randn(4, 16, 384)
    for step in range(1, 11):
        y = base(x)
        for i in range(6):
            y = y + adapters[f"{i}_a"](y) @ adapters[f"{i}_b"].weight
        opt.zero_grad()
        y.square().mean().backward()
        opt.step()
        state = {"base": base.state_dict(), "adapters": adapters.state_dict(), "optimizer": opt.state_dict(), "step": step}
        timed(f"{out}/runs/lora/{step}/model.pt", lambda p: torch.save(state, p))


def full(out):
    """All of a ResNet-18 at a low rate, with AdamW's state."""
    import torch
    from torch import nn

    from resnet import ResNet18
    torch.manual_seed(0)
    model = ResNet18(10)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-5)
    images, labels = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
    for step in range(1, 21):
        for _ in range(8):
            i = torch.randint(64, (8,))
            opt.zero_grad()
            nn.functional.cross_entropy(model(images[i]), labels[i]).backward()
            opt.step()
        state = {"model": model.state_dict(), "optimizer": opt.state_dict(), "step": step}
        timed(f"{out}/runs/full/{step}/model.pt", lambda p: torch.save(state, p))


def table():
    import numpy as np
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 10))
    return x, (x[:, 0] + x[:, 1] ** 2 + rng.standard_normal(500) > 1).astype(int)


def boosting(out, save, ext):
    from sklearn.ensemble import GradientBoostingClassifier
    x, y = table()
    model = GradientBoostingClassifier(warm_start=True, max_depth=3, random_state=0)
    for n in range(10, TREES + 1, 10):
        model.set_params(n_estimators=n).fit(x, y)
        timed(f"{out}/runs/trees/{n}/model.{ext}", lambda p: save(model, p))


def joblib_(out):
    import joblib
    boosting(out, joblib.dump, "joblib")


def pickle_(out):
    import pickle

    def dump(model, path):
        with open(path, "wb") as f:
            pickle.dump(model, f)
    boosting(out, dump, "pkl")


def xgb(out, ext):
    import xgboost
    x, y = table()
    data, booster = xgboost.DMatrix(x, y), None
    for n in range(10, TREES + 1, 10):
        booster = xgboost.train({"max_depth": 3, "nthread": 2}, data, 10, xgb_model=booster)
        timed(f"{out}/runs/xgb/{n}/model.{ext}", lambda p: booster.save_model(p))


def orbax(out):
    """Ten steps of which one part of four is trained."""
    import logging

    import jax
    import numpy as np
    import orbax.checkpoint as ocp
    logging.getLogger("absl").setLevel(logging.ERROR)
    jax.config.update("jax_platforms", "cpu")
    rng = np.random.default_rng(0)
    tree = {f"layer{i}": rng.standard_normal((1024, 1024), dtype=np.float32) for i in range(8)}
    saver = ocp.StandardCheckpointer()
    for step in range(1, 11):
        for i in (6, 7):
            tree[f"layer{i}"] = tree[f"layer{i}"] + 1e-3 * rng.standard_normal((1024, 1024), dtype=np.float32)

        def save(path):
            saver.save(path, {k: jax.numpy.asarray(v) for k, v in tree.items()})
            saver.wait_until_finished()
        timed(f"{out}/runs/orbax/{step}/state", save)


SCENARIOS = {
    "ResNet-18, 20 checkpoints": resnet20, "4 seeds x 10": seeds, "HP sweep 8 x 10": sweep, "resume, 2": resume,
    "LoRA, 10": lora, "full fine-tune with AdamW, 20": full, "GradientBoosting, joblib": joblib_, "GradientBoosting, pickle": pickle_,
    "XGBoost, JSON": lambda out: xgb(out, "json"), "XGBoost, UBJ": lambda out: xgb(out, "ubj"), "Orbax, 10, frozen parts": orbax,
}

if len(sys.argv) < 3:
    print(json.dumps(list(SCENARIOS)))
else:
    SCENARIOS[sys.argv[1]](sys.argv[2])
