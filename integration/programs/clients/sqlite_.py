"""SQLite with a write-ahead log (a shared mapping of the -shm file) and with a rollback journal; a second process reads."""
import os
import sqlite3

import numpy as np

SAME_NAMES = False  # the log stays where the last connection could not clean up
UNSTABLE = (".db", "-wal", "-shm", "-journal")
MODES = ("wal", "delete", "truncate", "persist")


def connect(dir, mode):
    c = sqlite3.connect(os.path.join(dir, mode + ".db"), isolation_level=None)
    if c.execute(f"pragma journal_mode={mode}").fetchone()[0] != mode:
        raise AssertionError(f"journal mode {mode} is refused")
    c.execute("pragma synchronous=full")
    return c


def save(dir, version, size):
    rows = max(10, size // 4 // 1000)
    data = np.random.default_rng(version)
    for mode in MODES:
        c = connect(dir, mode)
        c.execute("drop table if exists t")
        c.execute("create table t (id integer primary key, v blob)")
        c.execute("begin")
        c.executemany("insert into t values (?, ?)", ((i, data.bytes(1000)) for i in range(rows)))
        c.execute("commit")
        change_one(c, version)
        c.close()


def change_one(c, version):
    for i in range(3):
        c.execute("begin immediate")
        c.execute("update t set v=? where id=?", (bytes([version, i]) * 300, i * 3))
        c.execute("commit")
    c.execute("begin")
    c.execute("delete from t")
    c.execute("rollback")


def change(dir, version, size):
    for mode in MODES:
        c, other = connect(dir, mode), connect(dir, mode)  # POSIX locks between the two
        change_one(c, version)
        c.execute("begin immediate")
        try:
            other.execute("pragma busy_timeout=0")
            other.execute("begin immediate")
            raise AssertionError("two connections write at once")
        except sqlite3.OperationalError:
            pass
        c.execute("commit")
        if other.execute("select v from t where id=0").fetchone()[0] != bytes([version, 0]) * 300:
            raise AssertionError("the other connection does not see it")
        c.close()
        other.close()


def load(dir):
    found = {}
    for mode in MODES:
        c = sqlite3.connect(os.path.join(dir, mode + ".db"))
        if (said := c.execute("pragma integrity_check").fetchall()) != [("ok",)]:
            raise AssertionError(f"{mode}: {said}")
        found[mode] = b"".join(v for _, v in c.execute("select * from t order by id"))
        c.close()
    return found
