"""rsync, tar, cp, dd, and mv, as somebody who keeps checkpoints uses them."""
import os
import subprocess

from state import arrays, files

EXACT = True
LOCAL = ("du",)  # counts the names of an inode


def sh(dir, command):
    done = subprocess.run(["bash", "-euc", command], cwd=dir, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{command}: {done.stderr}")
    return done.stdout


def save(dir, version, size):
    os.makedirs(os.path.join(dir, "in"), exist_ok=True)
    for k, v in arrays(version, size).items():
        v.tofile(os.path.join(dir, "in", k.replace("/", "-")))
    sh(dir, """
        rm -rf cp rsync untar more out.tar out.tar.gz
        cp -a in cp
        rsync -a in/ rsync
        touch -d @1700000000 in in/*
        tar cf out.tar --sort=name --mtime=@0 --owner=0 --group=0 in
        tar czf - --mtime=@0 --owner=0 --group=0 --sort=name in | cat >out.tar.gz
        mkdir untar more
        tar xf out.tar -C untar
        dd if=out.tar of=more/dd bs=77777 status=none
        cp --reflink=auto --sparse=always out.tar more/sparse
        cp more/dd more/a && mv more/a more/b && ln more/b more/hard && ln -s b more/soft
    """)


def load(dir):
    found = {}
    for name, path in files(dir):
        with open(path, "rb") as f:
            found[name] = f.read()
    return found


def ways(dir):
    yield "tar lists", sh(dir, "tar tf out.tar; tar tzf out.tar.gz")
    yield "rsync finds nothing to do", sh(dir, "rsync -acin --no-times --omit-dir-times in/ rsync/")
    yield "the same", sh(dir, "diff -r in untar/in; cmp more/b more/soft; cmp more/hard out.tar; sha256sum more/*")
    yield "du", sh(dir, "find . -type f -printf '%P %s %n\\n' | sort")


def change(dir, version, size):
    save(os.path.join(dir), version, size)
    sh(dir, """
        rsync -a --inplace --no-whole-file in/ cp
        rsync -a --delete --no-whole-file in/ rsync
        mv more/b more/c && cp more/c more/b
        dd if=/dev/zero of=more/dd bs=1000 seek=3 count=2 conv=notrunc status=none
        truncate -s +12345 more/sparse
        cp out.tar more/longer.tar
        tar rf more/longer.tar --mtime=@0 --owner=0 --group=0 more/dd
    """)
