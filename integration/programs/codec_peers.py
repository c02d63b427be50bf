"""codec_peers.py DIR: other programs on the data of `make bench-codec`; a line of JSON for each data set and peer:
{"set", "peer", "size" (share of raw), "encode", "decode" (GB/s, one core)}. What is decoded is compared.

zipnn, z4ai and bigsmall are themselves, on one thread. "xet" is what hf-xet stores, by its published scheme: content-defined chunks
of 64 KiB on average by a gear hash, each once, four byte groups and LZ4 where that is smaller; "bitx" is ZipLLM's: XOR with the base,
bytes split by position, zstd.
"""
import json
import os
import struct
import sys
import time

os.environ["BIGSMALL_NO_VERSION_CHECK"] = "1"
import lz4.block
import numpy as np
import z4ai
import zstandard
from zipnn import ZipNN

WIDTH = {"F32": 4, "BF16": 2, "F16": 2}


def tensors(path):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    order = sorted(header.items(), key=lambda kv: kv[1]["data_offsets"])
    return order[0][1]["dtype"], data[8 + n:]


def split(p, w):
    return np.ascontiguousarray(np.frombuffer(p, np.uint8).reshape(-1, w).T).tobytes()


def join(p, w):
    return np.ascontiguousarray(np.frombuffer(p, np.uint8).reshape(w, -1).T).tobytes()


def xor(a, b):
    return (np.frombuffer(a, np.uint8) ^ np.frombuffer(b, np.uint8)).tobytes()


def zstd(level, raw):
    c, d = zstandard.ZstdCompressor(level=level), zstandard.ZstdDecompressor()
    return lambda: c.compress(raw), lambda z: d.decompress(z, max_output_size=len(raw))


def zipnn(raw, dtype):
    z = ZipNN(input_format="byte", bytearray_dtype={"F32": "float32", "BF16": "bfloat16", "F16": "float16"}[dtype], threads=1)
    return lambda: z.compress(bytearray(raw)), lambda c: bytes(z.decompress(c))


def z4(raw, dtype, base):
    name = {"F32": "fp32", "BF16": "bf16", "F16": "fp16"}[dtype]
    if base is None:
        return lambda: z4ai.compress(raw, dtype=name), lambda c: bytes(z4ai.decompress(c))
    return lambda: z4ai.compress_delta(raw, reference=base, dtype=name), lambda c: bytes(z4ai.decompress_delta(c, reference=base))


def bitx(raw, base, w):
    c, d = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()
    return (lambda: c.compress(split(xor(raw, base), w)), lambda z: xor(join(d.decompress(z, max_output_size=len(raw)), w), base))


GEAR = np.random.default_rng(0).integers(0, 2**64, 256, dtype=np.uint64)


def cuts(raw):
    """Ends of chunks of 8 KiB to 128 KiB, about 64 KiB: where the gear hash of the last 64 bytes has 16 zero bits on top."""
    g = GEAR[np.frombuffer(raw, np.uint8)]
    h = g.copy()
    k = 1
    while k < 64:  # h[i] = sum of g[i-j] << j for j < 2k
        shifted = np.zeros_like(h)
        shifted[k:] = h[:-k] << np.uint64(k)
        h += shifted
        k *= 2
    marks = np.flatnonzero(h >> np.uint64(48) == 0) + 1
    ends, start = [], 0
    for m in [*marks.tolist(), len(raw)]:
        while m - start > 128 << 10:
            start += 128 << 10
            ends.append(start)
        if m - start >= 8 << 10 or m == len(raw) and m > start:
            ends.append(m)
            start = m
    return ends


def xet(raw, base):
    import hashlib

    def chunks(p):
        start = 0
        for end in cuts(p):
            yield p[start:end]
            start = end

    def encode():
        held = {hashlib.blake2b(c, digest_size=16).digest() for c in chunks(base)} if base else set()
        size = 0
        for c in chunks(raw):
            h = hashlib.blake2b(c, digest_size=16).digest()
            if h not in held:
                held.add(h)
                n = len(c) // 4 * 4
                size += min(len(c), len(lz4.block.compress(c, store_size=False)),
                            len(lz4.block.compress(split(c[:n], 4) + c[n:], store_size=False)))
        return size

    return encode


def bigsmall(path, base):
    import tempfile

    import bigsmall as bs
    tmp = tempfile.mkdtemp()
    dst = os.path.join(tmp, "x.bs")

    def encode():
        if base:
            bs.compress_delta(path, base, dst)
        else:
            bs.compress(path, dst)
        return os.path.getsize(dst)

    return encode


def timed(f, *args, times):
    best, result = None, None
    for _ in range(times):
        start = time.perf_counter()
        result = f(*args)
        best = min(best or 1e9, time.perf_counter() - start)
    return result, best


def main():
    folder, rounds = sys.argv[1], int(sys.argv[2])
    for s in json.load(open(os.path.join(folder, "sets.json"))):
        path = os.path.join(folder, s["file"])
        dtype, raw = tensors(path)
        base = tensors(os.path.join(folder, s["base"]))[1] if s["base"] else None
        w = WIDTH[dtype]

        def tell(peer, size, encode=None, decode=None):
            print(json.dumps({"set": s["name"], "peer": peer, "size": size / len(raw), "encode": encode and len(raw) / encode / 1e9,
                              "decode": decode and len(raw) / decode / 1e9}), flush=True)

        both = {"zstd -1": zstd(1, raw), "zstd -3": zstd(3, raw), "z4ai": z4(raw, dtype, base)}
        if base is None:
            both["ZipNN"] = zipnn(raw, dtype)
        else:
            both["BitX"] = bitx(raw, base, w)
            both["ZipNN"] = zipnn(xor(raw, base), dtype)
        for peer, (encode, decode) in both.items():
            if base is not None and peer.startswith("zstd"):
                continue
            z, slow = timed(encode, times=rounds)
            back, slow2 = timed(decode, z, times=rounds)
            want = xor(raw, base) if peer == "ZipNN" and base is not None else raw
            if bytes(back) != want:
                sys.exit(f"{peer} does not give {s['name']} back")
            tell(peer, len(z), slow, slow2)
        size, slow = timed(xet(raw, base), times=1)
        tell("xet", size)
        if not os.environ.get("BIGSMALL"):
            continue
        try:
            size, slow = timed(bigsmall(path, base and os.path.join(folder, s["base"])), times=1)
            tell("BigSmall", size, slow)
        except Exception as e:  # it refuses some
            print(f"bigsmall, {s['name']}: {e}", file=sys.stderr)


if __name__ == "__main__":  # bigsmall starts processes that read this file
    main()
