"""notebook_names.py PACKAGE BIN MOUNT: runs and steps whose names are no UTF-8. Prints ok."""

import os
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import ckptfs  # noqa: E402

BIN, ROOT = sys.argv[2], Path(sys.argv[3])
RUN, STEP = os.fsdecode(b"caf\xe9"), os.fsdecode(b"step-\xff-1")
for name, loss in ((STEP, 1), ("2", 2)):
    (ROOT / "runs" / RUN / name).mkdir(parents=True)
    (ROOT / "runs" / RUN / name / "metrics.json").write_text(f'{{"loss": {loss}}}')
store = ckptfs.Store(ROOT, program=BIN)
assert list(store.runs) == [RUN], ascii(list(store.runs))
run = store.runs[RUN]
assert set(run.steps) == {STEP, "2"} and run.path == f"runs/{RUN}", ascii(list(run.steps))
frame = run.metrics()
assert frame.loc[STEP, "loss"] == 1 and frame.loc["2", "loss"] == 2, ascii(frame.to_dict())
best = run.best("loss")
assert best.name == STEP and os.path.exists(best) and best == store.best(RUN, "loss"), ascii(best.name)
assert store.runs_frame().index[0] == RUN and store.diff(run.steps["2"], best) is not None
assert set(store.ls(run, recursive=True).index) >= {f"{best.path}/metrics.json"}, ascii(list(store.ls(run, recursive=True).index))
assert best.open("metrics.json").read() == b'{"loss": 1}' and store.url(best)
for thing in (store, store.runs, run, run.steps, best):
    thing._repr_html_().encode()
print("ok")
