"""DVC: cache and workspace inside the mount and outside of it, every type of link; what is packed is not hashed again."""
import contextlib
import io
import os
import shutil

from state import arrays

os.environ.update(DVC_NO_ANALYTICS="1", DVC_TEST="true", DVC_IGNORE_ISATTY="true")
SAME_NAMES = False  # what DVC keeps for itself
CTIME = False  # `dvc add` of what is cached already makes it read-only once more
UNSTABLE = ("/.dvc/", "data.dvc", ".dvcignore")
LINKS = ("reflink", "hardlink", "symlink", "copy")
FEW = False  # dvc_few: one case
PLACES = ("both inside", "cache inside", "workspace inside")
hashed = []


def setup():
    import dvc_data.hashfile.hash as h
    start = h.HashStreamFile.__init__

    def counted(self, fobj, *args, **kwargs):
        hashed.append(getattr(fobj, "name", "?"))
        start(self, fobj, *args, **kwargs)
    h.HashStreamFile.__init__ = counted


def cases(dir):
    """(name, workspace, cache) of those that are wanted: all with CKPTFS_CLIENTS=all, else one of each kind."""
    outside = os.path.join(os.path.dirname(dir), "outside-" + os.path.basename(dir))
    for i, place in enumerate(PLACES):
        for j, link in enumerate(LINKS):
            if FEW and (i, j) != (0, 1) or not FEW and os.environ.get("CKPTFS_CLIENTS") != "all" and (i + j) % 3:
                continue
            name = f"{place}, {link}".replace(", ", "-").replace(" ", "-")
            ws, cache = os.path.join(dir, name, "ws"), os.path.join(dir, name, "cache")
            if place == "cache inside":
                ws = os.path.join(outside, name, "ws")
            if place == "workspace inside":
                cache = os.path.join(outside, name, "cache")
            yield name, link, ws, cache


def dvc(ws, *args):
    """One command: what it printed and its exit status."""
    from dvc.cli import main
    out, cwd = io.StringIO(), os.getcwd()
    os.chdir(ws)
    os.environ["DVC_SITE_CACHE_DIR"] = os.path.join(ws, ".dvc", "site")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = main(["-q", *args] if args[0] != "status" else list(args))
    finally:
        os.chdir(cwd)
    return code, out.getvalue().rpartition("\r")[2].replace(ws, "WS")  # after the progress bar


def must(ws, *args):
    code, said = dvc(ws, *args)
    if code:
        raise AssertionError(f"dvc {args}: {code}: {said}")
    return said


def save(dir, version, size):
    for name, link, ws, cache in cases(dir):
        if not os.path.exists(os.path.join(ws, ".dvc")):
            os.makedirs(ws)
            os.makedirs(cache)
            must(ws, "init", "--no-scm", "-f")
            must(ws, "config", "core.analytics", "false")
            if link == "reflink" or link == "hardlink" and not name.startswith("both"):
                link += ",copy"  # as is usual: ext4 has no reflinks, and no link goes to another filesystem
            must(ws, "config", "cache.type", link)
            must(ws, "cache", "dir", cache)
        elif os.path.exists(os.path.join(ws, "data.dvc")):
            dvc(ws, "unprotect", "data")
        data = os.path.join(ws, "data")
        os.makedirs(data, exist_ok=True)
        for k, v in arrays(version, size // 2).items():
            v.tofile(os.path.join(data, k.replace("/", "-")))
        with open(os.path.join(ws, "result"), "w") as f:  # what DVC says of a link that the filesystem has not
            f.write(f"add {dvc(ws, 'add', 'data')[0]}\n")
            shutil.rmtree(data)
            f.write(f"checkout {dvc(ws, 'checkout')[0]}\n")
        dvc(ws, "status")


def load(dir):
    found = {}
    for name, link, ws, cache in cases(dir):
        if not os.path.exists(ws):
            continue
        hashed.clear()
        seen = {"status": dvc(ws, "status"), "again": dvc(ws, "add", "data")[0], "hashed": len(hashed)}
        with open(os.path.join(ws, "result")) as f:
            seen["result"] = f.read()
        for folder, folders, names in os.walk(os.path.join(ws, "data")):
            for n in names:
                path = os.path.join(folder, n)
                with open(path, "rb") as f:
                    seen[n] = f.read()
                if link == "hardlink" and not name.startswith("both"):
                    continue
                seen[n + " kind"] = "symlink" if os.path.islink(path) else f"{os.stat(path).st_nlink} names"
        for folder, folders, names in os.walk(os.path.join(cache, "files")):
            for n in names:
                with open(os.path.join(folder, n), "rb") as f:
                    seen["cached " + n] = f.read()
        found[name] = seen
    return found
