"""Decodes payloads with scripts/python/ckptfs/reader.py, sound and damaged.

    decode.py READER PAYLOADS

PAYLOADS is JSON, one object a line: codec, stored, raw (bytes), base, columns and hash, bytes as hex. A sound
one has to become what has the hash. A damaged one may become anything or be refused, and nothing else may
happen. Printed are the numbers of states that streams had, and each line of the decoders that nothing
reached.
"""
import importlib.util
import inspect
import json
import random
import sys
import types


def load(path):
    spec = importlib.util.spec_from_file_location("reader", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def codes(code):
    yield code
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from codes(c)


def lines_of(module):
    """The lines of the functions from rANS on to the segments, but those that refuse."""
    source = inspect.getsource(module)
    first, last = (source[: source.index(part)].count("\n") for part in ("# rANS", "# Segments"))
    text = source.split("\n")
    found = set()
    for code in codes(compile(source, module.__file__, "exec")):
        if inspect.CO_NEWLOCALS & code.co_flags and first < code.co_firstlineno < last:
            found |= {n for _, _, n in code.co_lines() if n and n != code.co_firstlineno}
    lines = {n: text[n - 1].strip() for n in sorted(found)}
    return {n: line for n, line in lines.items() if not line.startswith(("raise", "except"))}


def decode(reader, p, stored):
    base, columns = (bytes.fromhex(p[k]) if p[k] else None for k in ("base", "columns"))
    return reader.decode(p["codec"], stored, p["raw"], base, columns)


def main(path, payloads):
    reader = load(path)
    reached, lanes = set(), set()

    def trace(frame, event, arg):
        if frame.f_code.co_filename != path:
            return None
        reached.add(frame.f_lineno)
        if frame.f_code.co_qualname == "Stream.__init__" and event == "call":
            lanes.add(frame.f_locals["lanes"])
        return trace

    with open(payloads, encoding="ascii") as f:
        payloads = [json.loads(line) for line in f]
    rng = random.Random(1)
    for p in payloads:
        stored = bytes.fromhex(p["stored"])
        if p["trace"]:
            sys.settrace(trace)
        content = decode(reader, p, stored)
        same = reader._blake3(content).hex() == p["hash"]
        sys.settrace(None)
        if not same:
            sys.exit(f"{p['name']}: decoded to {len(content)} other bytes")
        for _ in range(p["damage"]):
            bad = bytearray(stored)
            for _ in range(rng.randrange(1, 4)):
                at = rng.randrange(min(len(bad), 64)) if rng.randrange(2) else rng.randrange(len(bad))
                bad[at] = rng.randrange(256)
            if rng.randrange(4) == 0:
                del bad[rng.randrange(len(bad)) :]
            try:
                got = decode(reader, p, bytes(bad))
            except reader.Damaged:
                continue
            if len(got) != p["raw"]:
                sys.exit(f"{p['name']}: {len(got)} bytes, not the {p['raw']} that were asked for")
    print(json.dumps({
        "lanes": sorted(lanes),
        "missed": [f"{n}: {line}" for n, line in lines_of(reader).items() if n not in reached],
    }))


main(*sys.argv[1:])
