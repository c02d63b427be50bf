"""notebook_torn.py PACKAGE BIN MOUNT: a run of which one step has metrics that cannot be read, and the program was killed that saved another one. Prints ok."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import ckptfs  # noqa: E402

BIN, ROOT = sys.argv[2], Path(sys.argv[3])
warnings.simplefilter("error")
for step, metrics in enumerate(('{"loss": 3}', '{"loss": ', '{"loss": 1}'), 1):
    folder = ROOT / "runs/a" / str(step)
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(metrics)
store = ckptfs.Store(ROOT, program=BIN)
state = ""
while state != "torn":  # the mount may be late to ask how a program ended
    saver = subprocess.Popen([sys.executable, "-c", "import sys; f = open(sys.argv[1], 'wb'); f.write(bytes(100_000)); f.flush(); print(flush=True); input()",
                              str(ROOT / "runs/a/3/model.bin")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    saver.stdout.readline()
    saver.kill()
    saver.wait()
    state = store.runs["a"].steps[3].state
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    frame = store.runs["a"].metrics()
why = json.loads(subprocess.run([BIN, "log", "--json", str(ROOT / "runs/a")], check=True, stdout=subprocess.PIPE).stdout)["steps"][1]["problem"]
assert [str(w.message) for w in said] == [f"runs/a/2: {why}"] and said[0].filename == __file__, [(str(w.message), w.filename) for w in said]
assert list(frame.columns) == ["loss", "torn"] and list(frame["torn"]) == [False, False, True] and frame["torn"].dtype == bool, frame
print("ok")
