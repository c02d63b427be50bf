"""clients/run.py CLIENT MOUNT PLAIN SIZE [UID]: drives one client on the mount and in a plain folder, for who asks.

CLIENT is a module beside this file:
    save(dir, version, size)    saves as its users do, in dir, which exists
    load(dir)                   loads it as its users do
    ways(dir)                   optional: yields (name, value) for each further way to read it
    change(dir, version, size)  optional: changes what is there in place; else save() over it
    EXACT                       True where the files' bytes are a function of version and size
    INEXACT                     suffixes of those that are none all the same
    SAME_NAMES                  False where the files' names are not
    UNSTABLE                    parts of the names of files that loading itself writes: their bytes and times may move
    CTIME                       False where loading changes modes, so that ctime moves
    LOCAL                       ways that say what is another machine's own: inode numbers, names of one inode
    setup()                     optional: once, before everything
    saver(dir, version, size)   optional: what save() is without making what it saves, for timing.py

Reads a command a line and answers one line, "ok …" or what is wrong:
    save V | change V   in both folders; loaded and compared at once
    check [FOLDER]      everything is loaded again, and compared with the plain folder; on the mount each file's bytes, size,
                        inode number, times and mode are what they were after the last save or change. FOLDER is where another
                        machine has the files, with inodes of its own
With UID everything runs as that user, in a folder that everybody may enter, once save and load have run as root in a
scratch folder: what a library imports late may lie where that user may not read.
"""
import gc
import importlib
import os
import shutil
import sys
import tempfile
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from state import differences, digest, snapshot  # noqa: E402

name, mount, plain, size, *user = sys.argv[1:]
size = int(size)
answers = os.fdopen(os.dup(1), "w")  # nobody else's: libraries print
os.dup2(2, 1)
try:
    client = importlib.import_module(name)
except ImportError as e:
    sys.exit(print(f"missing: {e}", file=answers))
getattr(client, "setup", lambda: None)()


def loaded(folder):
    """Everything the client's library reads back from folder, as hashes: nothing of it stays mapped or open."""
    seen = digest({"load": client.load(folder)})
    gc.collect()
    for way, value in getattr(client, "ways", lambda _: ())(folder):
        seen.update(digest({way: value}))
        del value
    gc.collect()
    return seen


def warm(uid):
    """Runs it all once as root, then becomes that user."""
    scratch = tempfile.mkdtemp()
    client.save(scratch, 1, size)
    getattr(client, "change", client.save)(scratch, 2, size)
    loaded(scratch)
    shutil.rmtree(scratch)
    os.chdir("/")
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    os.environ["HOME"] = plain


class Bad(Exception):
    pass


state = {"snapshot": {}, "loaded": {}}


def write(how, version):
    for folder in (plain, mount) if version % 2 else (mount, plain):
        how(folder, version, size)
        gc.collect()
    before, state["loaded"] = state["loaded"], loaded(plain)
    if before == state["loaded"]:
        raise Bad("two versions load the same: the test sees nothing")
    check_loaded()
    state["snapshot"] = snapshot(mount)
    other = snapshot(plain)
    if getattr(client, "EXACT", False):
        want, got = ({k: v["data"] for k, v in seen.items() if not k.endswith(getattr(client, "INEXACT", ()))}
                     for seen in (other, state["snapshot"]))
        if bad := differences(want, got):
            raise Bad("bytes: " + "; ".join(bad))
    if getattr(client, "SAME_NAMES", True) and other.keys() != state["snapshot"].keys():
        raise Bad(f"files {sorted(state['snapshot'])}, want {sorted(other)}")
    return f"ok {len(other)} files, {sum(v['size'] for v in other.values())} bytes"


def check_loaded(folder=mount):
    own = tuple("." + way for way in getattr(client, "LOCAL", ())) if folder != mount else ()
    keep = lambda seen: {k: v for k, v in seen.items() if not own or not k.startswith(own)}
    if bad := differences(keep(state["loaded"]), keep(loaded(folder))):
        raise Bad("loaded: " + "; ".join(bad))


def check(folder=mount):
    # Stat and bytes first: a load may write.
    unstable = getattr(client, "UNSTABLE", ())
    now = snapshot(folder)
    forget = {} if getattr(client, "CTIME", True) else {"ctime": None}
    if folder != mount:
        forget = dict.fromkeys(("ino", "ctime", "nlink"))
    keep = lambda seen: {k: v | forget for k, v in seen.items() if not any(part in k for part in unstable)}
    if bad := differences(keep(state["snapshot"]), keep(now)):
        raise Bad("files: " + "; ".join(bad))
    check_loaded(folder)
    return f"ok {len(now)} files"


if user:
    warm(int(user[0]))
print("ready", file=answers, flush=True)
for line in sys.stdin:
    command, *args = line.split()
    try:
        if command == "check":
            said = check(*args)
        elif command == "quit":
            break
        else:
            how = client.save if command == "save" else getattr(client, "change", client.save)
            said = write(how, int(args[0]))
    except Bad as e:
        said = f"bad {e}"
    except BaseException:
        traceback.print_exc()
        said = "bad " + " | ".join(traceback.format_exc().strip().splitlines()[-6:])
    gc.collect()
    print(said.replace("\n", " ")[:4000], file=answers, flush=True)
