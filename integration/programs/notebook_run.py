"""notebook_run.py PACKAGE NOTEBOOK STORE BIN: executes a notebook on a store, by a real kernel, and prints what it answers, a JSON object a cell."""

import json
import os
import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat

package, notebook, store, program = sys.argv[1:]
nb = nbformat.read(notebook, as_version=4)
nbformat.validate(nb)
assert not any(c.get("outputs") or c.get("execution_count") for c in nb.cells), "a notebook of the documents has no outputs"
with tempfile.TemporaryDirectory() as tmp:
    os.environ.update(
        PYTHONPATH=package, PYTHONDONTWRITEBYTECODE="1", PATH=f"{Path(program).parent}:{os.environ['PATH']}", CKPTFS_NOTEBOOK_STORE=store,
        HOME=tmp, JUPYTER_PLATFORM_DIRS="1", JUPYTER_RUNTIME_DIR=f"{tmp}/runtime", IPYTHONDIR=f"{tmp}/ipython",
    )
    nbclient.NotebookClient(nb, timeout=120, resources={"metadata": {"path": tmp}}).execute()
for cell in nb.cells:
    if cell.cell_type == "code":
        said = {"source": cell.source, "text": "", "html": ""}
        for out in cell.outputs:
            assert out.output_type in ("stream", "execute_result") and out.get("name") != "stderr", out
            data = out.get("data", {})
            said["text"] += out.get("text", "") + data.get("text/plain", "")
            said["html"] += data.get("text/html", "")
        print(json.dumps(said))
