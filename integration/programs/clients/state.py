"""What the clients save, made from a version and a size alone, and how two loaded things are compared."""
import collections.abc
import dataclasses
import functools
import hashlib
import os

import numpy as np


@functools.lru_cache(maxsize=2)
def arrays(version, size, tensors=4):
    """fp32 arrays by name, size bytes in all. Only the last one differs from version to version, as in a model
    whose last layer is trained. Not to be changed: the next who asks gets the same ones."""
    n = max(1, size // 4 // tensors)
    made = {}
    for i in range(tensors):
        seed = version * 1000 + i if i == tensors - 1 else i
        rows = max(1, n // 256)
        made[f"layer{i}/weight"] = np.random.default_rng(seed).standard_normal((rows, 256), dtype=np.float32)
    made["step"] = np.array([version], dtype=np.int64)
    return made


@functools.lru_cache(maxsize=2)
def tensors(version, size, count=4):
    """arrays() as torch tensors, dots in their names."""
    import torch
    return {k.replace("/", "."): torch.from_numpy(v) for k, v in arrays(version, size, count).items()}


def as_array(value):
    """The bytes of an array of any library as a NumPy array of one-byte numbers, with a word for its type and shape; None
    for what is no array."""
    module = type(value).__module__.partition(".")[0]
    if module == "torch" and hasattr(value, "untyped_storage"):
        import torch
        t = value.detach().cpu().contiguous()
        return f"torch {t.dtype} {tuple(t.shape)}", t.reshape(-1).view(torch.uint8).numpy() if t.numel() else np.empty(0, np.uint8)
    if module in ("jaxlib", "jax") or isinstance(value, (np.ndarray, np.generic)):
        a = np.asarray(value)
        if a.dtype == object:
            return None
        return f"array {a.dtype} {a.shape}", np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    return None


def walk(value, path=""):
    """Every leaf of a value by the way to it: (path, words, bytes or None)."""
    if (found := as_array(value)) is not None:
        yield path, *found
    elif isinstance(value, collections.abc.Mapping):
        for k in sorted(value, key=str):
            yield from walk(value[k], f"{path}.{k}")
    elif isinstance(value, (list, tuple)):
        for i, v in enumerate(value):
            yield from walk(v, f"{path}[{i}]")
    elif isinstance(value, (bytes, bytearray, memoryview)):
        yield path, "bytes", np.frombuffer(value, np.uint8)
    elif dataclasses.is_dataclass(value):
        yield from walk(vars(value), path)
    else:
        yield path, f"{type(value).__name__} {value!r}", None


def digest(value):
    """A dict from the way to each leaf to its type, shape and hash."""
    return {path: words if data is None else f"{words} {hashlib.blake2b(data, digest_size=12).hexdigest()}"
            for path, words, data in walk(value)}


def touch(value):
    """Reads each byte of what was loaded, so that a lazy load is paid for."""
    return sum(int(data[:len(data) // 8 * 8].view(np.uint64).sum()) for _, _, data in walk(value) if data is not None
               and data.ctypes.data % 8 == 0)


def files(root):
    """The regular files below root, by their path relative to it."""
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield os.path.relpath(path, root), path


def snapshot(root):
    """What stat and read say of each file: all that must not move when a file is packed, evicted or mounted again."""
    seen = {}
    for name, path in files(root):
        with open(path, "rb") as f:
            data = hashlib.file_digest(f, "blake2b").hexdigest()[:24]
        st = os.stat(path)
        seen[name] = dict(size=st.st_size, ino=st.st_ino, mtime=st.st_mtime_ns, ctime=st.st_ctime_ns, mode=oct(st.st_mode),
                          uid=st.st_uid, nlink=st.st_nlink, data=data)
    return seen


def differences(want, got, limit=8):
    """The keys under which two dicts differ."""
    bad = [f"{k}: missing" for k in want if k not in got] + [f"{k}: not wanted" for k in got if k not in want]
    bad += [f"{k}: {got[k]}, want {want[k]}" for k in want if k in got and want[k] != got[k]]
    return bad[:limit]
