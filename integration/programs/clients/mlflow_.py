"""MLflow with its SQLite store and its artifacts on the mount."""
import contextlib
import logging
import os
import warnings

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["GIT_PYTHON_REFRESH"] = "quiet"
warnings.filterwarnings("ignore")
import mlflow  # noqa: E402
import numpy as np  # noqa: E402
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore  # noqa: E402
from mlflow.tracking import MlflowClient  # noqa: E402
from state import arrays  # noqa: E402

logging.getLogger("alembic").setLevel(logging.ERROR)
logging.getLogger("mlflow").setLevel(logging.ERROR)
SAME_NAMES = False  # runs have random names
UNSTABLE = (".db", "-wal", "-shm", "-journal")


@contextlib.contextmanager
def client(dir):
    yield MlflowClient(f"sqlite:///{dir}/mlflow.db")
    # The library keeps its connections as long as the process lives: let go of them, as its end would.
    engines = SqlAlchemyStore._engine_map
    for uri in list(engines):
        if dir in uri:
            engines[uri].dispose()


def experiment(c, dir):
    found = c.get_experiment_by_name("e")
    return found.experiment_id if found else c.create_experiment("e", artifact_location=os.path.join(dir, "artifacts"))


def save(dir, version, size):
    scratch = os.path.join(dir, "weights.npy")
    np.save(scratch, arrays(version, size)["layer3/weight"])
    with client(dir) as c:
        run = c.create_run(experiment(c, dir), run_name=f"run {version}").info.run_id
        c.log_param(run, "version", version)
        for i in range(5):
            c.log_metric(run, "loss", 1 / (i + version), step=i)
        c.log_artifact(run, scratch, "model")
        c.set_terminated(run)
    os.remove(scratch)


def load(dir):
    found = {}
    with client(dir) as c:
        for r in c.search_runs([experiment(c, dir)]):
            path = os.path.join(dir, "artifacts", r.info.run_id, "artifacts", "model", "weights.npy")
            found[r.info.run_name] = {"params": r.data.params, "weights": np.load(path), "status": r.info.status,
                                      "loss": [m.value for m in c.get_metric_history(r.info.run_id, "loss")]}
    return found
