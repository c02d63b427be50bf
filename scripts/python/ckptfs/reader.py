#!/usr/bin/env python3
"""Reads the files of a store without ckptfs and without a mount, by docs/store-format.md and the package
comments that it names. It needs Python 3.11 and nothing else, and this one file. It is slow.

    python3 reader.py STORE ls [PATH]       state, size and path of every file
    python3 reader.py STORE cat PATH        its bytes to standard output
    python3 reader.py STORE cp PATH DEST    a file or a folder to DEST, which must not exist; . is everything

A PATH counts from the mount's root. Nothing is written to the store, which should not be mounted meanwhile.

Every record that is read is compared with its BLAKE3, by the package blake3 where it is installed. The XXH3
and the CRC of a payload say no more than that, and are not looked at. --no-verify leaves the comparison out.

What a store says is not trusted: a size is checked before memory is taken, links in the tree are not followed
out of it, and DEST is made new.
"""

import argparse
import errno
import functools
import math
import os
import re
import stat
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right

FORMAT_VERSION, SEGMENT_VERSIONS, RECORD_VERSION = 4, (8, 9), 2
MAX_CHUNK = (16 << 20) - 1  # bytes of a record, stored or decoded
MAX_BASED = 1 << 20  # decoded bytes of a record that has a base, and of its bases
MAX_RECIPE = 10 << 20  # decoded bytes of all bases of a recipe together
MAX_VALUE = 8 << 20  # bytes that a recipe has at a time
MAX_OBJECT = 8 << 30
MAX_RECORDS = 1 << 18  # of a segment
CHUNK_SIZE = 256 << 10
FILE_HEADER, RECORD_HEADER, ENTRY, TRAILER = 64, 80, 56, 160  # bytes, in segments
TREE_RECORD, HOLLOW_HEADER = 64, 160  # bytes, in tree/
HOLLOW_TEXT = b"ckptfs: packed, read it through the mount of its store".ljust(63) + b"\n"
XATTR = "user.ckptfs"
XATTR_ARCH = "user.ckptfs.arch"  # a user's, though its name begins like the store's own
PACKED, HOLLOW, EMPTYING, REMOTE, LOST = 1, 4, 8, 32, 128
RAW, ZSTD, PLANES, PATCH, DELTA, ROUNDED, LOW_RANK, RECIPE = range(8)
BASED = (PATCH, DELTA, ROUNDED, LOW_RANK, RECIPE)
BLOCK = 1 << 20


class Damaged(Exception):
    """What was read is not what was written, or no version of this program's."""


def need(holds, what):
    if not holds:
        raise Damaged(what)


class Cursor:
    """Reads bytes one after the other; past the end it raises Damaged."""

    def __init__(self, data, pos=0):
        self.data, self.pos = data, pos

    def take(self, n):
        need(0 <= n <= len(self.data) - self.pos, "ends too early")
        self.pos += n
        return self.data[self.pos - n : self.pos]

    def rest(self):
        return self.take(len(self.data) - self.pos)

    def byte(self):
        return self.take(1)[0]

    def u(self, n):
        return int.from_bytes(self.take(n), "little")

    def number(self):
        """An unsigned LEB128 varint of the fewest bytes, at most 2^63-1."""
        value = 0
        for shift in range(0, 63, 7):
            b = self.byte()
            value |= (b & 0x7F) << shift
            if b < 0x80:
                need(b or not shift, "a number is longer than it has to be")
                return value
        raise Damaged("a number is too large")

    def end(self):
        need(self.pos == len(self.data), "bytes are left over")


# Checksums

def _crc_table():
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    return table


_CRC = _crc_table()


def crc32c(data):
    table, crc = _CRC, 0xFFFFFFFF
    for b in data:
        crc = table[(crc ^ b) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


# BLAKE3 of many chunks at once: a number of Python has a slot of 64 bits for a word of each of them.

_IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
_MESSAGE = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
_MIXES = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
          (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
_START, _END, _PARENT, _ROOT = 1, 2, 4, 8


def _slots(words):
    return int.from_bytes(array("Q", words).tobytes(), sys.byteorder)


def _words(slots, lanes):
    words = array("Q")
    words.frombytes(slots.to_bytes(8 * lanes, sys.byteorder))
    return words


def _compress(cv, m, counter, length, flags, lanes):
    ones = _slots([1] * lanes)
    mask = 0xFFFFFFFF * ones
    v = [*cv, *(x * ones for x in _IV[:4]), counter, 0, length * ones, flags * ones]
    for _ in range(7):
        for k, (a, b, c, d) in enumerate(_MIXES):
            va, vb, vc, vd = v[a], v[b], v[c], v[d]
            va = va + vb + m[2 * k] & mask
            vd ^= va
            vd = (vd >> 16 | vd << 16) & mask
            vc = vc + vd & mask
            vb ^= vc
            vb = (vb >> 12 | vb << 20) & mask
            va = va + vb + m[2 * k + 1] & mask
            vd ^= va
            vd = (vd >> 8 | vd << 24) & mask
            vc = vc + vd & mask
            vb ^= vc
            vb = (vb >> 7 | vb << 25) & mask
            v[a], v[b], v[c], v[d] = va, vb, vc, vd
        m = [m[i] for i in _MESSAGE]
    return [v[i] ^ v[i + 8] for i in range(8)]


def _leaves(data, first, lanes, flags):
    """The chaining values of so many chunks of one length, by word."""
    size = len(data) // lanes
    blocks = max(1, -(-size // 64))
    words = array("I", bytes(data) + bytes(64 * blocks - size if lanes == 1 else 0))
    if sys.byteorder == "big":
        words.byteswap()
    counter = _slots(range(first, first + lanes))
    cv = [x * _slots([1] * lanes) for x in _IV]
    for b in range(blocks):
        m = [_slots(words[16 * b + i :: 16 * blocks]) for i in range(16)]
        at = (_START if b == 0 else 0) | (_END | flags if b == blocks - 1 else 0)
        cv = _compress(cv, m, counter, min(64, size - 64 * b), at, lanes)
    return [_words(x, lanes) for x in cv]


def _blake3(data):
    full, rest = divmod(len(data), 1024)
    if full == 0 or full == 1 and rest == 0:
        level = _leaves(data, 0, 1, _ROOT)
    else:
        level = _leaves(data[: full * 1024], 0, full, 0)
        if rest:
            last = _leaves(data[full * 1024 :], full, 1, 0)
            level = [x + y for x, y in zip(level, last)]
    while (n := len(level[0])) > 1:
        pairs = n // 2
        m = [_slots(x[: 2 * pairs][side::2]) for side in (0, 1) for x in level]
        cv = [x * _slots([1] * pairs) for x in _IV]
        up = _compress(cv, m, 0, 64, _PARENT | (_ROOT if n == 2 else 0), pairs)
        level = [_words(u, pairs) + x[2 * pairs :] for u, x in zip(up, level)]
    return struct.pack("<8I", *(x[0] for x in level))


try:
    from blake3 import blake3 as _package

    def blake3(data):
        return _package(data).digest()
except ImportError:
    blake3 = _blake3


# Zstandard (RFC 8878): one frame that states its length, without a checksum

_LITERALS = [(i, 0) for i in range(16)] + [
    (16, 1), (18, 1), (20, 1), (22, 1), (24, 2), (28, 2), (32, 3), (40, 3), (48, 4), (64, 6),
    (128, 7), (256, 8), (512, 9), (1024, 10), (2048, 11), (4096, 12), (8192, 13), (16384, 14), (32768, 15),
    (65536, 16)]
_MATCHES = [(i + 3, 0) for i in range(32)] + [
    (35, 1), (37, 1), (39, 1), (41, 1), (43, 2), (47, 2), (51, 3), (59, 3), (67, 4), (83, 4),
    (99, 5), (131, 7), (259, 8), (515, 9), (1027, 10), (2051, 11), (4099, 12), (8195, 13), (16387, 14),
    (32771, 15), (65539, 16)]
_OFFSETS = [(1 << i, i) for i in range(32)]
_DEFAULTS = (  # of literals' lengths, offsets, matches' lengths: shares, their logarithm, the most of it
    ([4, 3] + [2] * 11 + [1] * 3 + [2] * 9 + [3, 2] + [1] * 5 + [-1] * 4, 6, 9, _LITERALS),
    ([1] * 6 + [2] * 3 + [1] * 15 + [-1] * 5, 5, 8, _OFFSETS),
    ([1, 4, 3] + [2] * 6 + [1] * 37 + [-1] * 7, 6, 9, _MATCHES))
_MOST = 128 << 10  # bytes of a block


class Backward:
    """Bits of a stream that is read from its end. Before its start are zeros, and left is negative."""

    def __init__(self, data):
        need(data and data[-1], "a stream of bits has no end")
        self.data = data
        self.left = 8 * len(data) - 9 + data[-1].bit_length()

    def peek(self, n):
        at = self.left - n
        if at < 0:
            return int.from_bytes(self.data[:8], "little") << -at & (1 << n) - 1
        return int.from_bytes(self.data[at >> 3 : (at >> 3) + 8], "little") >> (at & 7) & (1 << n) - 1

    def read(self, n):
        value = self.peek(n)
        self.left -= n
        return value


def _shares(r, most, symbols):
    """The shares of an FSE table and their logarithm."""
    start, value = r.pos, int.from_bytes(r.data[r.pos : r.pos + 512], "little")
    log, at = (value & 15) + 5, 4
    need(log <= most, "a table is too large")
    left, shares = 1 << log, []
    while left > 0:
        need(len(shares) < symbols, "a table has too many symbols")
        bits = (left + 1).bit_length()
        got, low = value >> at & (1 << bits) - 1, (1 << bits - 1) - 1
        below = (1 << bits) - 2 - left
        at += bits
        if got & low < below:
            got &= low
            at -= 1
        elif got > low:
            got -= below
        shares.append(got - 1)
        left -= abs(got - 1)
        repeat = 3 if got == 1 else 0
        while repeat == 3:
            repeat = value >> at & 3
            at += 2
            shares += [0] * repeat
            need(len(shares) <= symbols, "a table has too many symbols")
    need(left == 0, "a table's shares do not add up")
    r.pos = start
    r.take(-(-at // 8))
    return shares, log


def _fse(shares, log):
    """For each state its symbol, how many bits follow, and what they are added to."""
    size = high = 1 << log
    symbols, following = [0] * size, [max(1, abs(s)) for s in shares]
    for s, share in enumerate(shares):
        if share == -1:
            high -= 1
            symbols[high] = s
    at = 0
    for s, share in enumerate(shares):
        for _ in range(max(share, 0)):
            symbols[at] = s
            at = at + (size >> 1) + (size >> 3) + 3 & size - 1
            while at >= high and high:
                at = at + (size >> 1) + (size >> 3) + 3 & size - 1
    need(at == 0, "a table's shares do not add up")
    table = []
    for s in symbols:
        bits = log + 1 - following[s].bit_length()
        table.append((s, bits, (following[s] << bits) - size))
        following[s] += 1
    return table, log


def _weights(r):
    """The weights of the symbols of a Huffman code, all but the last."""
    size = r.byte()
    if size >= 128:
        packed = r.take((size - 126) // 2)
        return [w for b in packed for w in (b >> 4, b & 15)][: size - 127]
    r = Cursor(r.take(size))
    table, log = _fse(*_shares(r, 6, 256))
    bits, out = Backward(r.rest()), []
    one, other = bits.read(log), bits.read(log)
    while len(out) < 255:
        symbol, n, base = table[one]
        out.append(symbol)
        one, other = other, base + bits.read(n)
        if bits.left < 0:
            return out + [table[one][0]]
    raise Damaged("a Huffman code has too many symbols")


def _huffman(r):
    """For each value of so many bits the symbol and its bits."""
    weights = _weights(r)
    total = sum(1 << w >> 1 for w in weights)
    log = total.bit_length()
    left = (1 << log) - total
    need(0 < log <= 11 and left & left - 1 == 0 and max(weights) <= 11, "no Huffman code")
    weights.append(left.bit_length())
    table = []
    for w in range(1, log + 1):
        for s, weight in enumerate(weights):
            if weight == w:
                table += [(s, log + 1 - w)] * (1 << w - 1)
    need(len(table) == 1 << log, "no Huffman code")
    return table, log


def _huffman_stream(data, n, table, log):
    bits, out = Backward(data), bytearray()
    for _ in range(n):
        symbol, used = table[bits.peek(log)]
        bits.left -= used
        out.append(symbol)
    need(bits.left == 0, "a Huffman stream has another length")
    return bytes(out)


class Frame:
    """One frame of Zstandard while it is decoded; before what it makes stands a dictionary of raw content."""

    def __init__(self, stored, raw, dictionary):
        self.r, self.raw, self.before = Cursor(stored), raw, len(dictionary)
        self.out = bytearray(dictionary)
        self.code, self.tables, self.offsets = None, [None] * 3, [1, 4, 8]

    def decode(self):
        r = self.r
        need(r.u(4) == 0xFD2FB528, "no Zstandard frame")
        head = r.byte()
        need(head & 0x3F == 0x20, "a Zstandard frame of another kind")
        need(self.size(head >> 6) == self.raw, "a Zstandard frame of another length")
        last = 0
        while not last:
            block = r.u(3)
            last, kind, n = block & 1, block >> 1 & 3, block >> 3
            need(n <= _MOST, "a block is too large")
            if kind == 0:
                self.put(r.take(n))
            elif kind == 1:
                self.put(r.take(1) * n)
            else:
                need(kind == 2, "a block of a kind that is reserved")
                self.block(Cursor(r.take(n)))
        r.end()
        need(len(self.out) == self.before + self.raw, "a Zstandard frame is of another length than it states")
        return bytes(self.out[self.before :])

    def size(self, kind):
        return self.r.u(1 << kind) + (256 if kind == 1 else 0)

    def put(self, data):
        need(len(self.out) + len(data) <= self.before + self.raw, "a frame is longer than it states")
        self.out += data

    def literals(self, r):
        head = r.data[r.pos : r.pos + 5] + bytes(5)
        kind, form = head[0] & 3, head[0] >> 2 & 3
        bits = int.from_bytes(head[:5], "little")
        if kind < 2:
            r.take((1, 2, 1, 3)[form])
            n = bits >> (4 if form & 1 else 3) & (1 << (5, 12, 5, 20)[form]) - 1
            need(n <= _MOST, "too many literals")
            return r.take(n) if kind == 0 else r.take(1) * n
        width = (10, 10, 14, 18)[form]
        r.take((3, 3, 4, 5)[form])
        n, stored = bits >> 4 & (1 << width) - 1, bits >> 4 + width & (1 << width) - 1
        need(n <= _MOST, "too many literals")
        r = Cursor(r.take(stored))
        if kind == 2:
            self.code = _huffman(r)
        need(self.code, "a Huffman code is missing")
        if form == 0:
            return _huffman_stream(r.rest(), n, *self.code)
        sizes = [r.u(2), r.u(2), r.u(2)]
        each = (n + 3) // 4
        need(n >= 3 * each, "too few literals for four streams")
        out = [_huffman_stream(r.take(s), each, *self.code) for s in sizes]
        return b"".join(out) + _huffman_stream(r.rest(), n - 3 * each, *self.code)

    def table(self, r, i, mode):
        shares, log, most, values = _DEFAULTS[i]
        if mode == 0:
            self.tables[i] = _fse(shares, log)
        elif mode == 1:
            self.tables[i] = [(r.byte(), 0, 0)], 0
        elif mode == 2:
            self.tables[i] = _fse(*_shares(r, most, len(values)))
        need(self.tables[i], "a table is missing")
        need(max(e[0] for e in self.tables[i][0]) < len(values), "a table has too many symbols")
        return self.tables[i]

    def block(self, r):
        literals = Cursor(self.literals(r))
        n = r.byte()
        if n >= 128:
            n = r.u(2) + 0x7F00 if n == 255 else (n - 128 << 8) + r.byte()
        if n:
            modes = r.byte()
            need(modes & 3 == 0, "sequences of a kind that is reserved")
            (lt, ll), (ot, ol), (mt, ml) = (self.table(r, i, modes >> 6 - 2 * i & 3) for i in range(3))
            bits = Backward(r.rest())
            l, o, m = bits.read(ll), bits.read(ol), bits.read(ml)
            for left in range(n - 1, -1, -1):
                base, extra = _OFFSETS[ot[o][0]]
                offset = base + bits.read(extra)
                base, extra = _MATCHES[mt[m][0]]
                match = base + bits.read(extra)
                base, extra = _LITERALS[lt[l][0]]
                length = base + bits.read(extra)
                self.put(literals.take(length))
                self.match(self.offset(offset, length), match)
                if left:
                    l, m, o = (t[s][2] + bits.read(t[s][1]) for t, s in ((lt, l), (mt, m), (ot, o)))
            need(bits.left == 0, "sequences have another length")
        else:
            r.end()
        self.put(literals.rest())

    def offset(self, value, length):
        if value > 3:
            self.offsets = [value - 3, *self.offsets[:2]]
            return value - 3
        i = value - 1 + (length == 0)
        offset = self.offsets[i] if i < 3 else self.offsets[0] - 1
        self.offsets = [offset, *(o for k, o in enumerate(self.offsets) if k != min(i, 2))]
        return offset

    def match(self, offset, n):
        out = self.out
        need(0 < offset <= len(out), "a match before the start")
        start = len(out) - offset
        self.put((bytes(out[start : start + n]) * (-(-n // offset)))[:n])


def zstd(stored, raw, dictionary=b""):
    return Frame(stored, raw, dictionary).decode()


# rANS (package rans)

class Stream:
    def __init__(self, lanes, data):
        need(lanes in (0, 4, 16, 32, 64) and len(data) >= 4 * lanes and len(data) % 2 == 0, "no stream")
        need(lanes or not data, "a stream without states")
        self.states = list(struct.unpack_from(f"<{lanes}I", data))
        need(all(1 << 15 <= x < 1 << 31 for x in self.states), "no state of a stream")
        self.words = iter(struct.unpack(f"<{len(data) // 2 - 2 * lanes}H", data[4 * lanes :]))

    def run(self, n, freqs):
        need(self.states, "a stream is missing")
        symbol, freq, start, below = bytearray(), [], [], 0
        for v, f in enumerate(freqs):
            symbol += bytes([v]) * f
            freq += [f] * f
            start += range(f)
        out, states, words = bytearray(n), self.states, self.words
        lanes = len(states)
        try:
            for i in range(n):
                x = states[i % lanes]
                slot = x & 4095
                out[i] = symbol[slot]
                x = freq[slot] * (x >> 12) + start[slot]
                states[i % lanes] = x if x >= 1 << 15 else x << 16 | next(words)
        except StopIteration:
            raise Damaged("a stream ends too early") from None
        return bytes(out)

    def end(self):
        need(all(x == 1 << 15 for x in self.states), "a stream does not end")
        need(next(self.words, None) is None, "a stream has words left")


class Bits:
    """Bits of a cursor, the lowest of a byte first."""

    def __init__(self, r):
        self.r, self.have, self.n = r, 0, 0

    def read(self, n):
        while self.n < n:
            self.have |= self.r.byte() << self.n
            self.n += 8
        value = self.have & (1 << n) - 1
        self.have >>= n
        self.n -= n
        return value

    def golomb(self, k):
        zeros = 0
        while not self.read(1):
            zeros += 1
            need(zeros <= 13, "a number is too large")
        high = self.read(zeros) | 1 << zeros
        return (high - 1 << k) | self.read(k)


def frequencies(r):
    bits = Bits(r)
    k, freqs, total, before = bits.read(3), [], 0, 0
    while total < 4096:
        z = bits.golomb(k)
        before += z >> 1 ^ -(z & 1)
        need(0 <= before <= 4096, "no frequency")
        freqs.append(before)
        total += before
        if before == 0:
            freqs += [0] * bits.golomb(0)
        need(len(freqs) <= 256, "too many frequencies")
    need(total == 4096 and bits.have == 0, "frequencies do not add up")
    return freqs


# Planes and differences (package codec)

def plain_part(r, n, stream, code):
    if code == 0:
        return r.take(n)
    if code == 1:
        return r.take(1) * n
    need(code == 2, f"a part of kind {code}")
    return stream.run(n, frequencies(r))


def bitmap(r, n, stream):
    """The places of the ones among n."""
    size, code = (n + 7) // 8, r.byte()
    if code == 5:
        period = r.byte()
        need(period, "a period of nothing")
        ones = bytearray(plain_part(r, size, stream, r.byte()))
        for i in range(period, size):
            ones[i] ^= ones[i - period]
    else:
        ones = plain_part(r, size, stream, code)
    need(n % 8 == 0 or ones[-1] >> n % 8 == 0, "bits past the end of a bitmap")
    return [i for i in range(n) if ones[i >> 3] >> (i & 7) & 1]


class Slab:
    """The planes of some elements; order has the elements of each group if they are sorted."""

    def __init__(self, r, n, order=None):
        self.r, self.n, self.order, self.ones = r, n, order, None
        lanes, size = r.byte(), r.u(3)
        self.stream = Stream(lanes, r.take(size))

    def part(self, n, code):
        if code == 3:
            self.ones = bitmap(self.r, n, self.stream)
        elif code == 4:
            need(self.ones and self.order is None, "a part like none before")
        else:
            return plain_part(self.r, n, self.stream, code)
        out = bytearray(n)
        if self.ones:
            values = plain_part(self.r, len(self.ones), self.stream, self.r.byte())
            for i, v in zip(self.ones, values):
                out[i] = v
        return out

    def plane(self):
        code = self.r.byte()
        if self.order is None:
            return self.part(self.n, code)
        if code & 0x80:
            return self.part(self.n, code & 0x7F)
        out, first = bytearray(self.n), True
        for group in self.order:
            if not group:
                continue
            code = code if first else self.r.byte()
            first = False
            for i, v in zip(group, self.part(len(group), code)):
                out[i] = v
        return out

    def elements(self, width):
        out = bytearray(self.n * width)
        for j in range(width):
            out[j::width] = self.plane()
        self.stream.end()
        return out


def slabs(raw, width):
    """The first element and the number of elements of each slab."""
    need(width in (1, 2, 4, 8), "elements of another width")
    most = 131072 if width == 1 else 262144 // width
    return [(i, min(most, raw // width - i)) for i in range(0, raw // width, most)]


def rotate(data, width):
    """Each element right by one bit."""
    ones = int.from_bytes((1).to_bytes(width, "little") * (len(data) // width), "little")
    x, top = int.from_bytes(data, "little"), 8 * width - 1
    return (x >> 1 & ((1 << top) - 1) * ones | (x & ones) << top).to_bytes(len(data), "little")


def planes(stored, raw):
    r, out = Cursor(stored), bytearray()
    shape = r.byte()
    width, rotated = shape & 15, shape >> 4
    need(rotated < 2 and not (rotated and width == 1), "planes of another shape")
    for _, n in slabs(raw, width):
        elements = Slab(r, n).elements(width)
        out += rotate(elements, width) if rotated else elements
    out += r.take(raw % width)
    r.end()
    return bytes(out)


def groups(r, base, width):
    """The elements of each group, by those of the base; None where they are not sorted."""
    count = r.byte()
    need(1 <= count <= 6, "another number of groups")
    if count == 1:
        return None
    need(width in (2, 4), "groups of elements of another width")
    shift, top = r.byte(), r.byte()
    need(8 * width - 9 <= shift <= 8 * width - 2, "no exponent")
    order = [[] for _ in range(count)]
    low = (1 << 8 * width - 1) - 1
    for i, x in enumerate(base):
        order[min(max(top - ((x & low) >> shift), 0), count - 1)].append(i)
    return order


def delta(stored, base, raw):
    need(len(base) == raw, "a base of another length")
    r, out = Cursor(stored), bytearray()
    kind, width = r.byte(), r.byte()
    need(kind < 2, "a difference of another kind")
    for first, n in slabs(raw, width):
        layout = f"<{n}{ {1: 'B', 2: 'H', 4: 'I', 8: 'Q'}[width] }"
        before = struct.unpack_from(layout, base, first * width)
        elements = Slab(r, n, groups(r, before, width)).elements(width)
        mask, sign = (1 << 8 * width) - 1, 1 << 8 * width - 1
        steps = (z >> 1 ^ -(z & 1) for z in struct.unpack(layout, elements))
        if kind:
            before = (~x & mask if x & sign else x | sign for x in before)
        now = (x + step & mask for x, step in zip(before, steps))
        if kind:
            now = (x ^ sign if x & sign else ~x & mask for x in now)
        out += struct.pack(layout, *now)
    out += r.take(raw % width)
    r.end()
    return bytes(out)


# Half precision (package half)

BF16, F16, SINGLE = 1, 2, 3


def to_bf16(x):
    if x & 0x7FFFFFFF > 0x7F800000:
        return 0x7FC0
    return x + 0x7FFF + (x >> 16 & 1) >> 16


def to_f16(x):
    sign, x = x >> 16 & 0x8000, x & 0x7FFFFFFF
    if x > 0x7F800000:
        return sign | 0x7E00 | x >> 13 & 0x3FF
    if x >= 0x47800000:
        return sign | 0x7C00
    if x >= 0x38800000:
        x -= 0x38000000
        return sign | x + 0xFFF + (x >> 13 & 1) >> 13
    shift = 126 - (x >> 23)
    if shift > 25:
        return sign
    x = x & 0x7FFFFF | 0x800000
    return sign | x + (1 << shift - 1) - 1 + (x >> shift & 1) >> shift


def rounded(stored, base, raw):
    need(len(base) == 2 * raw and raw % 2 == 0, "a base of another length")
    need(stored and stored[0] in (BF16, F16), "half precision of another kind")
    half = to_bf16 if stored[0] == BF16 else to_f16
    singles = struct.unpack(f"<{raw // 2}I", base)
    out = [half(x) for x in singles]
    if rest := stored[1:]:
        nans = [i for i, x in enumerate(singles) if x & 0x7FFFFFFF > 0x7F800000]
        became = rest * len(nans) if len(rest) == 2 else rest
        need(nans and len(became) == 2 * len(nans), "another number of NaNs")
        for i, x in zip(nans, struct.unpack(f"<{len(nans)}H", became)):
            out[i] = x
    return struct.pack(f"<{len(out)}H", *out)


# Low rank (package lowrank)

def signed(data, size):
    if size == 2:
        return struct.unpack(f"<{len(data) // 2}h", data)
    return [(x & 0xFFFFFF ^ 0x800000) - 0x800000 for x in struct.unpack(f"<{len(data) // 4}I", data)]


def columns_of(data, cols, rank, size):
    """For each of the factor's numbers, that of each column."""
    need(len(data) == cols * rank * size, "columns of another length")
    numbers, out, at = signed(data, size), [[] for _ in range(rank)], 0
    for first in range(0, cols, 16):
        n = min(16, cols - first)
        block = numbers[at : at + n * rank]
        at += n * rank
        for j in range(rank):
            if size == 2:  # in pairs
                out[j] += block[j // 2 * 2 * n + j % 2 : (j // 2 + 1) * 2 * n : 2]
            else:
                out[j] += block[j * n : (j + 1) * n]
    return out


def singles(values):
    """Rounded to single precision; what is too large is infinite."""
    return array("f", values)


def finite(bits, predicted, exponent):
    """What is predicted; the base itself where the prediction is not finite."""
    return [p if p & exponent != exponent else b for b, p in zip(bits, predicted)]


def predict(base, sums, exponent, kind):
    scale = 2.0 ** exponent
    if kind == SINGLE:
        n = len(base) // 4
        now = singles(b + s * scale for b, s in zip(struct.unpack(f"<{n}f", base), sums))
        bits = struct.unpack(f"<{n}I", base)
        return struct.pack(f"<{n}I", *finite(bits, struct.unpack(f"={n}I", now), 0x7F800000))
    n = len(base) // 2
    bits = struct.unpack(f"<{n}H", base)
    if kind == BF16:
        before = struct.unpack(f"<{n}f", struct.pack(f"<{n}I", *(b << 16 for b in bits)))
        half, infinite = to_bf16, 0x7F80
    else:
        before, half, infinite = struct.unpack(f"<{n}e", base), to_f16, 0x7C00
    sums = singles((s + (1 << 31) & 0xFFFFFFFF) - (1 << 31) for s in sums)
    products = singles(s * scale for s in sums)
    now = struct.unpack(f"={n}I", singles(b + p for b, p in zip(before, products)))
    return struct.pack(f"<{n}H", *finite(bits, [half(x) for x in now], infinite))


def low_rank(stored, base, columns, raw):
    need(len(base) == raw, "a base of another length")
    r = Cursor(stored)
    kind, rank, exponent = r.byte(), r.byte(), struct.unpack("b", r.take(1))[0]
    cols, at, size = r.u(4), r.u(4), r.u(4)
    codec = r.byte()
    need(kind in (BF16, F16, SINGLE) and 2 <= rank <= 64 and rank % 2 == 0, "low rank of another kind")
    need(32 <= cols <= MAX_BASED and at < cols, "low rank of another shape")
    need(codec not in BASED, "rows that need a base")
    width = 4 if kind == SINGLE else 2
    need(raw % width == 0, "low rank of another length")
    number = 4 if kind == SINGLE else 2
    n = raw // width
    rows = -(-(at + n) // cols)
    size_of_rows = rows * rank * number
    need(size_of_rows <= MAX_BASED, "too many rows")
    factor = signed(decode(codec, r.take(size), size_of_rows), number)
    columns = columns_of(columns, cols, rank, number)
    sums = []
    for row in range(rows):
        first, last = (at if row == 0 else 0), min(cols, at + n - row * cols)
        line = [0] * (last - first)
        for u, v in zip(factor[row * rank : (row + 1) * rank], columns):
            line = [s + u * x for s, x in zip(line, v[first:last])]
        sums += line
    return delta(r.rest(), predict(base, sums, exponent, kind), raw)


# Single precision. Python has doubles: of two numbers of single precision, what one operation makes in double
# precision, rounded to single precision, is what single precision makes.

def single(x):
    return array("f", (x,))[0]


def bits_of(values):
    """The bits of numbers of single precision."""
    return struct.unpack(f"={len(values)}I", singles(values))


def floats(bits):
    return struct.unpack(f"={len(bits)}f", array("I", bits))


def bits(x):
    return bits_of((x,))[0]


def float_of(x):
    return floats((x,))[0]


def quotient(x, y):
    """Single precision, also of a division by zero."""
    if y:
        return single(x / y)
    return math.copysign(math.inf, x) * math.copysign(1, y) if x and x == x else math.nan


def fused(x, a, c):
    """x a + c, rounded once: in double precision to odd, then to single precision."""
    p = x * a
    s = p + c
    back = s - p
    rest = (p - (s - back)) + (c - back)
    if rest and rest == rest and not struct.unpack("=Q", struct.pack("=d", s))[0] & 1:
        s = math.nextafter(s, math.copysign(math.inf, rest))
    return single(s)


def ordinal(x, width):
    """Numbers in the order of their values, -0 before 0; and back."""
    top = 1 << width - 1
    return x ^ (2 * top - 1 if x & top else top)


def unordinal(x, width):
    top = 1 << width - 1
    return x ^ (top if x & top else 2 * top - 1)


def unzigzag(z):
    return z >> 1 ^ -(z & 1)


# Quantised formats (package quant)

Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4, E4M3, E5M2 = range(1, 16)
NF4, FP4, INT8, UINT8, INT4, NVFP4, MXFP4_PAIRS, SCALES_OF, AWQ = range(16, 25)
FUSED, STORED = 1, 2
DIVIDE_BF16, TIMES, TIMES_BF16, DIVIDE_F16, TIMES_127 = range(1, 6)
OVER, GLOBAL, GLOBAL_BF16, GLOBAL_F16, POWER, OVER_OR = range(6)
SHAPES = {  # elements and bytes of a block, elements of a part, bits of a code, variants
    Q8_0: (32, 34, 32, 8, 3), Q4_0: (32, 18, 32, 4, 3), Q4_1: (32, 20, 32, 4, 3), Q5_0: (32, 22, 32, 5, 3),
    Q5_1: (32, 24, 32, 5, 3), Q2_K: (256, 84, 16, 2, 1), Q3_K: (256, 110, 16, 3, 1), Q4_K: (256, 144, 32, 4, 1),
    Q5_K: (256, 176, 32, 5, 1), Q6_K: (256, 210, 16, 6, 1), IQ4_NL: (32, 18, 32, 4, 1),
    IQ4_XS: (256, 136, 32, 4, 1), MXFP4: (32, 17, 32, 4, 1), E4M3: (1, 1, 64, 8, 5), E5M2: (1, 1, 64, 8, 5),
    NF4: (2, 1, 64, 4, 1), FP4: (2, 1, 64, 4, 2), INT8: (1, 1, 64, 8, 6), UINT8: (1, 1, 64, 8, 6),
    INT4: (2, 1, 64, 4, 6), NVFP4: (2, 1, 64, 4, 5), MXFP4_PAIRS: (2, 1, 64, 4, 5), SCALES_OF: (1, 1, 1, 8, 1),
    AWQ: (8, 4, 64, 4, 3)}
STREAMS, LOW, D, M, SCALE, GROUP, MASK, CODE = 23, 0, 1, 3, 5, 6, 14, 15
NONLINEAR = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
TWICE_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12)
BETWEEN_E2M1 = (0.5, 1.5, 2.5, 3.5, 5, 7, 10)
SURE = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 3 / 8)


class Streams:
    """What blocks have that does not follow. A stream without a byte is zeros."""

    def __init__(self, parts):
        self.parts, self.at, self.low = parts, [0] * STREAMS, 0

    def byte(self, i):
        part, at = self.parts[i], self.at[i]
        if not part:
            return 0
        need(at < len(part), "a stream of a quantised tensor ends too early")
        self.at[i] = at + 1
        return part[at]

    def nibble(self):
        at, high = divmod(self.low, 2)
        self.low += 1
        if not self.parts[LOW]:
            return 0
        need(at < len(self.parts[LOW]), "a stream of a quantised tensor ends too early")
        self.at[LOW] = at + 1
        return self.parts[LOW][at] >> 4 * high & 15

    def half(self, i, predicted):
        """A scale in binary16."""
        z = self.nibble() | self.byte(i) << 4
        top = self.byte(i + 1)
        need(top < 16, "a scale that is too large")
        z |= top << 12
        return unordinal(ordinal(predicted, 16) + unzigzag(z) & 0xFFFF, 16)

    def word(self, predicted, size, first=0):
        """A scale that lies apart."""
        z = sum(self.byte(first + k) << 8 * k for k in range(size))
        if size == 1:
            return predicted + unzigzag(z) & 0xFF
        return unordinal(ordinal(predicted, 8 * size) + unzigzag(z) & (1 << 8 * size) - 1, 8 * size)

    def field(self, i, predicted, width, turn=False):
        """A number of so many bits, and what is stored of it."""
        z = self.byte(i)
        need(z >> width == 0, "a field that is too large")
        r = unzigzag(z)
        return predicted + (-r if turn else r) & (1 << width) - 1, z

    def fields(self, i, predicted, width):
        both = [self.field(i, p, width) for p in predicted]
        return [v for v, _ in both], [z for _, z in both]

    def grouped(self, predicted, width, other):
        return [self.field(GROUP + min(k, 7), p, width)[0] for p, k in zip(predicted, other)]

    def end(self, parts):
        mask = self.parts[MASK]
        need(not mask or len(mask) == (parts + 7) // 8, "a mask of another length")
        need(not mask or parts % 8 == 0 or mask[-1] >> parts % 8 == 0, "bits past the end of a mask")
        self.at[MASK] = len(mask)
        need(all(len(p) in (0, at) for p, at in zip(self.parts, self.at)), "a stream is longer than it has to be")
        if self.low % 2 and self.parts[LOW]:
            need(self.parts[LOW][-1] >> 4 == 0, "bits past the end of a stream")


def reciprocal(x):
    return x and single(1 / x)


def nearest(v, low, high):
    """The whole number next to v, the even one of two; low of what is no number."""
    if not v > low:
        return low
    return round(min(v, high))


def steady(values, by, low, high):
    return [nearest(v, low, high) for v in singles(v * by for v in values)]


def group_of(d):
    """How sure a code is of which the number is off by so many steps; and whether it is the next one above."""
    left = single(0.5 - abs(d))
    return (bisect_right(SURE, left) if left > -1 / 128 else 7), d > 0


def among(v, i, table):
    """group_of in a table of rising numbers."""
    d = single(v - table[i])
    if d > 0 and i + 1 < len(table):
        return group_of(single(d / (table[i + 1] - table[i])))
    if d < 0 and i > 0:
        return group_of(single(d / (table[i] - table[i - 1])))
    return 7, False


class Blocks:
    """Makes blocks of numbers, each with the scales that follow, and what streams say."""

    def __init__(self, kind, variant, streams):
        self.kind, self.variant, self.streams = kind, variant, streams
        self.elements, self.size, self.sub, self.width, _ = SHAPES[kind]
        self.corrected = any(streams.parts[MASK:])
        self.parts = 0  # that there were

    def make(self, x):
        out = bytearray()
        for at in range(0, len(x), self.elements):
            out += self.block(x[at : at + self.elements])
        self.streams.end(self.parts)
        return bytes(out)

    def block(self, x):
        parts = [x[i : i + self.sub] for i in range(0, len(x), self.sub)]
        whole = [all(map(math.isfinite, p)) for p in parts]
        self.least = [min(p) + 0.0 if w else 0.0 for p, w in zip(parts, whole)]
        self.most = [max(p) + 0.0 if w else 0.0 for p, w in zip(parts, whole)]
        head, factors = self.scales(parts, whole)
        codes = []
        for p, w, (a, b) in zip(parts, whole, factors):
            usable = w and a == a
            v = self.unrounded(p, a, b) if usable else [math.nan] * len(p)
            guess = [self.code(y) for y in v] if usable else [0] * len(p)
            codes += self.correct(v, guess) if self.corrected else guess
        return self.packed(head, codes)

    def correct(self, v, codes):
        k = self.parts
        self.parts += 1
        mask = self.streams.parts[MASK]
        if mask:
            need(k // 8 < len(mask), "a mask of another length")
            if not mask[k // 8] >> k % 8 & 1:
                return codes
        return [self.streams.field(CODE + group, c, self.width, up)[0]
                for c, (group, up) in ((c, self.distance(y, c)) for y, c in zip(v, codes))]

    def first(self, part, whole):
        """The first of the numbers of greatest magnitude."""
        most = max(map(abs, part)) if whole else 0.0
        return next(v for v in part if abs(v) == most) + 0.0 if whole else 0.0

    def scales(self, parts, whole):
        """The scales of a block, and for each part what its codes are computed from."""
        kind, s = self.kind, self.streams
        if kind in (Q4_K, Q5_K, Q2_K):
            return self.ranges(whole)
        if kind in (Q6_K, Q3_K, IQ4_XS):
            return self.magnitudes(parts, whole)
        if kind == MXFP4:
            top = bits(max(self.most[0], -self.least[0])) >> 23
            e, _ = s.field(SCALE, max(top - 2, 0), 8)
            return [e], [(float_of(255 - e << 23), 0.0)]
        if kind in (Q4_1, Q5_1):
            levels = 15 if kind == Q4_1 else 31
            step, least = single(single(self.most[0] - self.least[0]) / levels), self.least[0]
        else:
            least = 0.0
            if kind == Q8_0:
                step = single(max(self.most[0], -self.least[0]) / 127)
            else:
                step = single(self.first(parts[0], whole[0]) / {Q4_0: -8, Q5_0: -16, IQ4_NL: -127}[kind])
        d = s.half(D, to_f16(bits(step)))
        m = s.half(M, to_f16(bits(least))) if kind in (Q4_1, Q5_1) else 0
        if self.variant == STORED or kind == IQ4_NL:
            step, least = float_of(from_f16(d)), float_of(from_f16(m))
        a = reciprocal(step)
        if self.variant == STORED and kind in (Q4_0, Q5_0) and step == 0:
            a = math.nan
        return [d, m], [(a, least)]

    def ranges(self, whole):
        kind, s = self.kind, self.streams
        levels, field, width = {Q4_K: (15, 63, 6), Q5_K: (31, 63, 6), Q2_K: (3, 15, 4)}[kind]
        low = [min(v, 0.0) for v in self.least]
        spans = singles(hi - lo for hi, lo in zip(self.most, low))
        offsets = [0 - v for v in low]
        d = s.half(D, to_f16(bits(single(single(max(spans) / levels) / field))))
        m = s.half(M, to_f16(bits(single(max(offsets) / field))))
        step, least = float_of(from_f16(d)), float_of(from_f16(m))
        sc, stored = s.fields(SCALE, steady(spans, reciprocal(single(step * levels)), 0, field), width)
        mn = s.grouped(steady(offsets, reciprocal(least), 0, field), width, stored)
        factors = []
        for x, y, span, offset in zip(sc, mn, spans, offsets):
            a, b = single(step * x), single(least * y)
            if a == 0:
                a, b = single(span / levels), offset
            factors.append((a or math.nan, b))
        return [d, m, sc, mn], factors

    def magnitudes(self, parts, whole):
        kind, s = self.kind, self.streams
        levels, low, high = {Q6_K: (32, -128, 127), Q3_K: (4, -32, 31), IQ4_XS: (127, -32, 31)}[kind]
        firsts = [self.first(p, w) for p, w in zip(parts, whole)]
        top = max(firsts, key=abs)
        d = s.half(D, to_f16(bits(single(top / (-low * levels)))))
        step = float_of(from_f16(d))
        predicted = steady(firsts, -reciprocal(single(step * levels)), low, high)
        if kind != Q6_K:
            predicted = [p + 32 for p in predicted]
        if step == 0 and kind != IQ4_XS:
            predicted = [0] * len(predicted)
        if kind == Q6_K:
            sc = s.grouped(predicted, 8, [(-1 - p if p < 0 else p) >> 4 for p in predicted])
            numbers = [v - 256 if v > 127 else v for v in sc]
        else:
            sc, _ = s.fields(SCALE, predicted, 6)
            numbers = [v - 32 for v in sc]
        factors = []
        for n, first in zip(numbers, firsts):
            a = single(step * n)
            if kind == IQ4_XS:
                factors.append((reciprocal(a), 0.0))
            else:
                factors.append(((a or single(first / -levels)) or math.nan, 0.0))
        return [d, 0, sc, []], factors

    def unrounded(self, part, a, b):
        """What the codes of a part are rounded from, or cut off."""
        kind = self.kind
        if kind in (Q4_K, Q5_K, Q2_K, Q6_K, Q3_K):
            return singles(v / a for v in singles(v + b for v in part))
        if kind in (Q4_0, Q5_0, Q4_1, Q5_1):
            more = {Q4_0: 8.5, Q5_0: 16.5}.get(kind, 0.5)
            if kind in (Q4_1, Q5_1):
                part = singles(v - b for v in part)
            if self.variant == FUSED:
                return [fused(v, a, more) for v in part]
            return singles(v + more for v in singles(v * a for v in part))
        return singles(v * a for v in part)

    def code(self, v):
        kind = self.kind
        if kind in (Q6_K, Q3_K):
            low = -32 if kind == Q6_K else -4
            return nearest(v, low, -low - 1) - low
        if kind in (Q4_K, Q5_K, Q2_K):
            return nearest(v, 0, (1 << self.width) - 1)
        if kind == Q8_0:
            if v != v:
                return 0
            v = max(-128.0, min(v, 127.0))
            return int(single(v + math.copysign(float_of(0x3EFFFFFF), v))) & 0xFF
        if kind in (IQ4_NL, IQ4_XS):
            if not v > NONLINEAR[0]:
                return 0
            if v >= NONLINEAR[15]:
                return 15
            i = bisect_right(NONLINEAR, v)
            return i - (single(v - NONLINEAR[i - 1]) < single(NONLINEAR[i] - v))
        if kind == MXFP4:
            n = sum(abs(v) > t for t in BETWEEN_E2M1)
            return n | 8 if n and math.copysign(1, v) < 0 else n
        return int(min(v, (1 << self.width) - 1)) if v > 0 else 0

    def distance(self, v, code):
        kind = self.kind
        if kind in (Q6_K, Q3_K):
            return group_of(single(v - (code - (32 if kind == Q6_K else 4))))
        if kind in (Q4_K, Q5_K, Q2_K):
            return group_of(single(v - code))
        if kind == Q8_0:
            return group_of(single(v - (code - 256 if code > 127 else code)))
        if kind in (IQ4_NL, IQ4_XS):
            return among(v, code, NONLINEAR)
        if kind == MXFP4:
            return among(-v if code & 8 or code == 0 and v < 0 else v, code & 7, TWICE_E2M1)
        return group_of(single(single(v - 0.5) - code))

    def packed(self, head, codes):
        kind, p = self.kind, bytearray(self.size)
        halves = {Q4_0: 2, IQ4_NL: 2, Q4_1: 4, MXFP4: 1, Q5_0: 6, Q5_1: 8}.get(kind)
        if kind == MXFP4:
            p[0] = head[0]
        else:
            at = {Q2_K: 80, Q3_K: 108, Q6_K: 208}.get(kind, 0)
            struct.pack_into("<H", p, at, head[0])
            if kind in (Q4_1, Q5_1, Q4_K, Q5_K, Q2_K):
                struct.pack_into("<H", p, at + 2, head[1])
        if kind == Q8_0:
            p[2:] = codes
        elif halves:
            p[halves:] = nibbles(codes)
            if kind in (Q5_0, Q5_1):
                struct.pack_into("<I", p, halves - 4, sum(c >> 4 << j for j, c in enumerate(codes)))
        else:
            self.superblock(p, *head[2:], codes)
        return p

    def superblock(self, p, sc, mn, codes):
        kind = self.kind
        if kind == IQ4_XS:
            struct.pack_into("<H", p, 2, sum((v >> 4) << 2 * j for j, v in enumerate(sc)))
            p[4:8] = bytes(a & 15 | (b & 15) << 4 for a, b in zip(sc[::2], sc[1::2]))
            for j in range(8):
                p[8 + 16 * j : 24 + 16 * j] = nibbles(codes[32 * j : 32 * j + 32])
        elif kind in (Q4_K, Q5_K):
            for j in range(4):
                p[4 + j] = sc[j] | sc[j + 4] >> 4 << 6
                p[8 + j] = mn[j] | mn[j + 4] >> 4 << 6
                p[12 + j] = sc[j + 4] & 15 | (mn[j + 4] & 15) << 4
            for j, c in enumerate(codes):
                p[self.size - 128 + j // 64 * 32 + j % 32] |= (c & 15) << j // 32 % 2 * 4
                if kind == Q5_K:
                    p[16 + j % 32] |= c >> 4 << j // 32
        elif kind == Q6_K:
            p[192:208] = sc
            for j, c in enumerate(codes):
                l, part = j % 32, j // 32 % 4
                p[j // 128 * 64 + part % 2 * 32 + l] |= (c & 15) << part // 2 * 4
                p[128 + j // 128 * 32 + l] |= c >> 4 << 2 * part
        else:
            if kind == Q2_K:
                p[:16] = bytes(a | b << 4 for a, b in zip(sc, mn))
            else:
                for j, v in enumerate(sc):
                    p[96 + j % 8] |= (v & 15) << j // 8 * 4
                    p[104 + j % 4] |= v >> 4 << j // 4 * 2
            for j, c in enumerate(codes):
                p[(16 if kind == Q2_K else 32) + j // 128 * 32 + j % 32] |= (c & 3) << j // 32 % 4 * 2
                if kind == Q3_K:
                    p[j % 32] |= c >> 2 << j // 32


def nibbles(codes):
    return bytes(a & 15 | (b & 15) << 4 for a, b in zip(codes[:16], codes[16:]))


EIGHTS = {E4M3: (3, 7, 448.0), E5M2: (2, 15, 57344.0)}  # bits of the mantissa, bias, the greatest number


def to_eight(v, kind):
    """The code of a number of eight bits, of what is too large the greatest; 0 of what is no number."""
    mantissa, bias, greatest = EIGHTS[kind]
    if v != v:
        return 0
    sign, v = (0x80 if math.copysign(1, v) < 0 else 0), min(abs(v), greatest)
    e = max(math.frexp(v)[1] - 1, 1 - bias) if v else 1 - bias
    return sign | (e + bias - 1 << mantissa) + round(v * 2.0 ** (mantissa - e))


def magnitude(code, kind):
    """The number of a code without its sign, as if all stood for numbers."""
    mantissa, bias, _ = EIGHTS[kind]
    exponent, fraction = divmod(code & 0x7F, 1 << mantissa)
    if exponent:
        fraction += 1 << mantissa
    return fraction * 2.0 ** (max(exponent, 1) - bias - mantissa)


SCALES = (4, 2, 2, 1, 1)  # bytes of a scale: single precision, bfloat16, binary16, E4M3, an exponent


def scale_bits(x, kind):
    if kind == 3:
        return to_eight(x, E4M3)
    x = bits(x)
    return (x, to_bf16(x), to_f16(x), None, x >> 23 & 0xFF)[kind]


def scale_number(b, kind):
    if kind == 3:
        return float_of(from_e4m3(b))
    if kind == 4:
        return 2.0 ** (b - 127) if b < 255 else math.nan
    return float_of((b, b << 16, from_f16(b & 0xFFFF))[kind])


def stretches(n, geometry):
    """From where to where n elements of a matrix share a scale, and the number of that."""
    kind, rows, cols, tall, wide, start = geometry
    need(kind < len(SCALES), "scales of a type that this program does not know")
    if tall == 0:
        return [(0, n, 0)]
    need(all(1 <= v <= 1 << 30 for v in (rows, cols, tall, wide)) and start <= rows * cols - n,
         "scales of another shape")
    across, runs, at = -(-cols // wide), [], start
    while at < start + n:
        row, column = divmod(at, cols)
        end = min(at - column + min((column // wide + 1) * wide, cols), start + n)
        runs.append((at - start, end - start, row // tall * across + column // wide))
        at = end
    return runs


class Eights(Blocks):
    """Makes numbers of eight bits, whose scales lie elsewhere: each of the part of a matrix that shares it."""

    def __init__(self, kind, variant, streams, geometry):
        super().__init__(kind, variant, streams)
        self.geometry = geometry

    def make(self, x):
        runs, v, codes = stretches(len(x), self.geometry), [], []
        scales = self.values(x, runs) if self.geometry[3] else {0: 1.0}
        for first, last, group in runs:
            v += self.scaled(x[first:last], self.factor(scales[group]))
        for at in range(0, len(v), self.sub):
            part = v[at : at + self.sub]
            guess = [self.code(y) for y in part]
            codes += self.correct(part, guess) if self.corrected else guess
        self.streams.end(-(-len(x) // self.sub))
        return self.laid(codes)

    def values(self, x, runs):
        """The scale of each group, in the order of the groups."""
        kind = self.geometry[0]
        return {group: scale_number(b, kind) for group, b in self.words(x, runs)}

    def words(self, x, runs):
        """The bits of the scales."""
        top, kind = {}, self.geometry[0]
        for first, last, group in runs:
            most = max((abs(v) for v in x[first:last] if math.isfinite(v)), default=0.0)
            top[group] = max(top.get(group, 0.0), most)
        return [(group, self.streams.word(self.predicted(top[group], kind), SCALES[kind])) for group in sorted(top)]

    def predicted(self, top, kind):
        """The bits of the scale of a group whose greatest magnitude is so much."""
        return scale_bits(single(top / EIGHTS[self.kind][2]), kind)

    def factor(self, s):
        """What elements are divided by, or multiplied with."""
        if self.variant == TIMES_BF16:
            return float_of(to_bf16(bits(quotient(1.0, s))) << 16)
        if self.variant == TIMES_127:
            return quotient(127.0, s)
        return quotient(1.0, s) if self.variant == TIMES else s

    def scaled(self, x, s):
        """What is rounded to the type."""
        if self.variant in (TIMES, TIMES_BF16, TIMES_127):
            v = singles(y * s for y in x)
        else:
            v = [quotient(y, s) for y in x]
        if self.variant in (DIVIDE_BF16, TIMES_BF16):
            return list(floats([to_bf16(b) << 16 for b in bits_of(v)]))
        if self.variant == DIVIDE_F16:
            return list(floats([from_f16(to_f16(b)) for b in bits_of(v)]))
        return list(v)

    def code(self, v):
        return to_eight(v, self.kind)

    def distance(self, v, code):
        v, code = abs(v), code & 0x7F
        d = single(v - magnitude(code, self.kind))
        at = code - 1 if d < 0 and code else code
        return group_of(single(d / (magnitude(at + 1, self.kind) - magnitude(at, self.kind))))

    def laid(self, codes):
        return bytes(codes)


OF_NF4 = [single(v) for v in (
    -1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1)]
OF_FP4 = [single(v) for v in (0, 0.0052083334885537624, 0.6666666865348816, 1, 0.3333333432674408, 0.5,
                              0.1666666716337204, 0.25)]
OF_FP4 += [0 - v for v in OF_FP4]
WHOLE = {INT8: (-128, 127, 0), UINT8: (-128, 127, 128), INT4: (-8, 7, 8)}  # the least, the greatest, the code of 0
LEAST = single(1e-38)


class Ruled(Eights):
    """Makes codes whose scales follow by a rule, or the scales themselves."""

    def __init__(self, kind, variant, streams, geometry, rule):
        super().__init__(kind, variant, streams, geometry)
        self.rule, self.levels, self.whole = rule
        need(self.rule < 6, "scales by a rule that this program does not know")
        need(all(0 < v < math.inf for v in (self.levels, self.whole)) and
             (self.rule == POWER) == (geometry[0] == 4), "scales by no rule")
        if kind in (NF4, FP4):
            numbers = OF_NF4 if kind == NF4 else OF_FP4
            self.codes = sorted(range(16), key=lambda c: (numbers[c], -c if variant else c))
            self.numbers = [numbers[c] for c in self.codes]
            self.bounds = [single(single(a + b) / 2) for a, b in zip(self.numbers, self.numbers[1:])]

    def make(self, x):
        if self.kind != SCALES_OF:
            return super().make(x)
        kind, _, cols, tall, wide, start = self.geometry
        runs = stretches(len(x), self.geometry)
        need(tall == 1 and cols == wide and start % wide == 0, "scales of another shape")
        out = b"".join(b.to_bytes(SCALES[kind], "little") for _, b in self.words(x, runs))
        self.streams.end(len(x))
        return out

    def predicted(self, top, kind):
        if self.rule == POWER:
            return max((bits(top) + (1 << 21) >> 23) - 2, 0)
        a = single(top / self.levels)
        if self.rule in (OVER, OVER_OR):
            b = scale_bits(a, kind)
            return b if b or self.rule == OVER else scale_bits((2.0**-23, 2.0**-7, 2.0**-10, 2.0**-3)[kind], kind)
        if self.rule == GLOBAL_BF16:
            a = float_of(to_bf16(bits(a)) << 16)
        elif self.rule == GLOBAL_F16:
            a = float_of(from_f16(to_f16(bits(a))))
        return scale_bits(single(self.whole * a), kind) or scale_bits(0.125, kind)

    def factor(self, s):
        if self.kind in (NF4, FP4):
            return quotient(1.0, LEAST if s < LEAST else s)
        return super().factor(quotient(s, self.whole) if self.kind == NVFP4 else s)

    def scaled(self, x, s):
        return list(singles(y * s for y in x)) if self.kind in (NF4, FP4) else super().scaled(x, s)

    def code(self, v):
        if self.kind in (NF4, FP4):
            return self.codes[bisect_left(self.bounds, v) if v == v else 0]
        if self.kind in WHOLE:
            least, most, zero = WHOLE[self.kind]
            return nearest(0.0 if v != v else v, least, most) + zero & 0xFF
        if v != v:
            return 0
        n = sum(abs(v) > t for t in (0.25, 1.25, 2.5, 5)) + sum(abs(v) >= t for t in (0.75, 1.75, 3.5))
        return n | 8 if v and math.copysign(1, v) < 0 else n

    def distance(self, v, code):
        if self.kind in (NF4, FP4):
            return among(v, self.codes.index(code), self.numbers)
        if self.kind in WHOLE:
            number = code - 256 if self.kind == INT8 and code > 127 else code - WHOLE[self.kind][2]
            return group_of(single(v - number))
        return among(single(2 * (-v if code & 8 or v < 0 else v)), code & 7, TWICE_E2M1)

    def laid(self, codes):
        if self.elements == 1:
            return bytes(codes)
        if self.kind in (NF4, FP4):
            return bytes(a << 4 | b for a, b in zip(codes[::2], codes[1::2]))
        return bytes(a | b << 4 for a, b in zip(codes[::2], codes[1::2]))


LANES = (0, 4, 1, 5, 2, 6, 3, 7)  # which nibble of a word has an output's code
ONE = 0x3C00  # in binary16


def lanes(words):
    """Codes of eight outputs each."""
    return [w >> 4 * k & 15 for w, in struct.iter_unpack("<I", words) for k in LANES]


class Channels(Blocks):
    """Makes codes of weights that were multiplied by a factor of their input, and divided by one of their output
    (AWQ). What is aside are the scales of groups of inputs, and behind them their zeros."""

    def __init__(self, kind, variant, streams, geometry, aside):
        super().__init__(kind, variant, streams)
        self.geometry, self.aside = geometry, aside

    def make(self, x):
        kind, rows, cols, tall, wide, start = self.geometry
        need(kind <= 2 and all(1 <= v <= 1 << 30 for v in (rows, cols, tall)) and wide == 1 and cols % 8 == 0 and
             start % 8 == 0 and start <= rows * cols - len(x), "scales of another shape")
        if not x:
            self.streams.end(0)
            return b""
        input_, last = start // cols, (start + len(x) - 1) // cols
        group, size = input_ // tall, SCALES[kind]
        count = last // tall - group + 1
        need(len(self.aside) == count * (cols * size + cols // 2), "other scales and zeros than these groups have")
        scales = [scale_number(int.from_bytes(self.aside[i : i + size], "little"), kind)
                  for i in range(0, count * cols * size, size)]
        zeros = lanes(self.aside[count * cols * size :])
        inputs = [scale_number(self.streams.word(ONE, 2), 2) for _ in range(last - input_ + 1)]
        some = self.streams.parts[2] or self.streams.parts[3]
        outputs = [scale_number(self.streams.word(ONE, 2, 2), 2) for _ in range(cols)] if some else None
        v, codes = [], []
        for i, w in enumerate(x):
            row, output = divmod(start + i, cols)
            at = (row // tall - group) * cols + output
            w = self.rounded(single(w * inputs[row - input_]))
            if outputs:
                w = self.rounded(quotient(w, outputs[output]))
            v.append((self.rounded(quotient(w, scales[at])), zeros[at]))
        for at in range(0, len(v), self.sub):
            part = v[at : at + self.sub]
            guess = [self.code(y) for y in part]
            codes += self.correct(part, guess) if self.corrected else guess
        self.streams.end(-(-len(x) // self.sub))
        return b"".join(sum(c << 4 * k for c, k in zip(codes[i : i + 8], LANES)).to_bytes(4, "little")
                        for i in range(0, len(codes), 8))

    def rounded(self, v):
        if self.variant == 0:
            return v
        return float_of(from_f16(to_f16(bits(v))) if self.variant == 1 else to_bf16(bits(v)) << 16)

    def code(self, v):
        v, zero = v
        return min(max(nearest(0.0 if v != v else v, -16, 16) + zero, 0), 15)

    def distance(self, v, code):
        v, zero = v
        return group_of(single(v - (code - zero)))


# What quantised formats stand for

def low_and_high(p):
    return [b & 15 for b in p] + [b >> 4 for b in p]


def unpacked(kind, p):
    """The codes of a block."""
    if kind == Q8_0:
        return list(struct.unpack("32b", p[2:]))
    if kind == IQ4_XS:
        return [c for j in range(8) for c in low_and_high(p[8 + 16 * j : 24 + 16 * j])]
    if kind not in (Q2_K, Q3_K, Q4_K, Q5_K, Q6_K):
        codes = low_and_high(p[-16:])
        if kind in (Q5_0, Q5_1):
            high = int.from_bytes(p[-20:-16], "little")
            codes = [c | (high >> j & 1) << 4 for j, c in enumerate(codes)]
        return codes
    codes = []
    for j in range(256):
        l, part = j % 32, j // 32
        if kind in (Q4_K, Q5_K):
            c = p[len(p) - 128 + part // 2 * 32 + l] >> part % 2 * 4 & 15
            codes.append(c | (p[16 + l] >> part & 1) << 4 if kind == Q5_K else c)
        elif kind == Q6_K:
            half, part = part // 4, part % 4
            c = p[64 * half + part % 2 * 32 + l] >> part // 2 * 4 & 15
            codes.append(c | (p[128 + 32 * half + l] >> 2 * part & 3) << 4)
        else:
            c = p[(16 if kind == Q2_K else 32) + part // 4 * 32 + l] >> part % 4 * 2 & 3
            codes.append(c | (p[l] >> part & 1) << 2 if kind == Q3_K else c)
    return codes


def scales_of(kind, p):
    """The scales of a block's parts, and the offsets."""
    if kind in (Q4_K, Q5_K):
        s = p[4:16]
        return ([s[j] & 63 for j in range(4)] + [s[j + 8] & 15 | s[j] >> 6 << 4 for j in range(4)],
                [s[j + 4] & 63 for j in range(4)] + [s[j + 8] >> 4 | s[j + 4] >> 6 << 4 for j in range(4)])
    if kind == Q2_K:
        return [b & 15 for b in p[:16]], [b >> 4 for b in p[:16]]
    if kind == Q3_K:
        return [(p[96 + j % 8] >> j // 8 * 4 & 15 | (p[104 + j % 4] >> j // 4 * 2 & 3) << 4) - 32
                for j in range(16)], [0] * 16
    if kind == Q6_K:
        return struct.unpack("16b", p[192:208]), [0] * 16
    if kind == IQ4_XS:
        high = int.from_bytes(p[2:4], "little")
        return [(p[4 + j // 2] >> j % 2 * 4 & 15 | (high >> 2 * j & 3) << 4) - 32 for j in range(8)], [0] * 8
    return [1], [-1]


def stands_for(kind, p):
    """The numbers of a block."""
    codes = unpacked(kind, p)
    if kind == MXFP4:
        d = 2.0 ** (p[0] - 128)
        return singles(-TWICE_E2M1[c & 7] * d if c > 8 else TWICE_E2M1[c & 7] * d for c in codes)
    at = {Q2_K: 80, Q3_K: 108, Q6_K: 208}.get(kind, 0)
    d, m = float_of(from_f16(int.from_bytes(p[at : at + 2], "little"))), 0.0
    if kind in (Q4_1, Q5_1, Q2_K, Q4_K, Q5_K):
        m = float_of(from_f16(int.from_bytes(p[at + 2 : at + 4], "little")))
    if kind in (IQ4_NL, IQ4_XS):
        codes = [NONLINEAR[c] for c in codes]
    else:
        zero = {Q4_0: 8, Q5_0: 16, Q6_K: 32, Q3_K: 4}.get(kind, 0)
        codes = [c - zero for c in codes]
    out, sub = array("f"), SHAPES[kind][2]
    for i, (scale, offset) in enumerate(zip(*scales_of(kind, p))):
        a, part = d * scale, codes[sub * i : sub * i + sub]
        if kind in (Q4_1, Q5_1, Q2_K, Q4_K, Q5_K):
            out += singles(a * c - m * offset for c in part)
        else:
            out += singles(a * c for c in part)
    return out


def dequantised(value, kind, geometry, n):
    """The bits of the numbers of blocks, or of n codes and the scales behind them."""
    if geometry:
        size = SCALES[geometry[0]] if geometry[0] < len(SCALES) else 1
        need(n <= len(value) and n <= MAX_VALUE // 4, "too few elements")
        runs = stretches(n, geometry)
        groups = sorted({group for _, _, group in runs}) if geometry[3] and n else []
        need(len(value) - n == size * len(groups), "another number of scales")
        scales = {group: scale_number(int.from_bytes(value[n + size * i : n + size * i + size], "little"),
                                      geometry[0]) for i, group in enumerate(groups)}
        wide = floats([from_e4m3(c) if kind == E4M3 else from_f16(c << 8) for c in value[:n]])
        out = singles(v * scales.get(group, 1.0) for first, last, group in runs for v in wide[first:last])
    else:
        elements, size = SHAPES[kind][:2]
        need(len(value) % size == 0 and len(value) // size * elements <= MAX_VALUE // 4, "no blocks, or too many")
        out = array("f")
        for at in range(0, len(value), size):
            out += stands_for(kind, value[at : at + size])
    return [b if b & 0x7FFFFFFF <= 0x7F800000 else 0x7FC00000 for b in bits_of(out)]


# Recipes (package recipe)

ELEMENTS = {1: 4, 2: 2, 3: 2, 4: 1, 5: 1, 6: 1, 7: 2, 8: 4, 9: 8}  # bytes of one, by type
TAKE, WIDEN, ROUND, QUANTISE, DEQUANTISE, COMBINE, TRANSPOSE, ASIDE = range(1, 9)
SUM, MEAN, LERP, TASK, TASKS, STOCK = 0, 2, 4, 6, 14, 16  # one more: every operation is rounded to the type
AVERAGE, AVERAGE_EACH, MOVE, AVERAGE_APART, MOVE_APART = range(8, 13)


def widened(exponent, mantissa, bits, bias):
    """A number of so many bits of mantissa as one of single precision, without its sign."""
    if exponent:
        return exponent + 127 - bias << 23 | mantissa << 23 - bits
    n = mantissa.bit_length()
    return n and n + 127 - bias - bits << 23 | mantissa << 24 - n & 0x7FFFFF


def from_f16(x):
    sign, exponent, mantissa = (x & 0x8000) << 16, x >> 10 & 31, x & 0x3FF
    if exponent == 31:
        return sign | 0x7F800000 | mantissa << 13
    return sign | widened(exponent, mantissa, 10, 15)


def from_e4m3(x):
    sign = (x & 0x80) << 24
    return sign | (0x7FC00000 if x & 0x7F == 0x7F else widened(x >> 3 & 15, x & 7, 3, 7))


def singles_of(data, kind):
    """Floats of a type as the bits of single precision."""
    n = len(data) // ELEMENTS[kind]
    if kind == 1:
        return list(struct.unpack(f"<{n}I", data))
    if kind == 4:
        return [from_e4m3(x) for x in data]
    if kind == 5:
        return [from_f16(x << 8) for x in data]
    halves = struct.unpack(f"<{n}H", data)
    return [x << 16 for x in halves] if kind == 2 else [from_f16(x) for x in halves]


def program(r):
    """The ops of a recipe."""
    ops, n = [], r.byte()
    need(1 <= n <= 8, "another number of ops")
    for _ in range(n):
        op = r.byte()
        if op in (TAKE, ASIDE):
            kind, groups = r.byte(), []
            need(kind in ELEMENTS, "elements of a type that this program does not know")
            for _ in range(r.number()):
                times, stretches = r.number(), []
                for _ in range(r.number()):
                    first, length, step = r.number(), r.number(), r.number()
                    stretches.append((first, length, unzigzag(step)))
                groups.append((times, stretches))
            ops.append((op, kind, groups))
        elif op == WIDEN:
            ops.append((op,))
        elif op == ROUND:
            ops.append((op, r.byte()))
        elif op == QUANTISE:
            kind, variant, head = r.byte(), r.byte(), r.number()
            need(kind in SHAPES and variant < SHAPES[kind][4],
                 f"variant {variant} of quantised format {kind}, which this program does not know")
            geometry = [r.byte()] + [r.number() for _ in range(5)] if kind >= E4M3 else None
            rule = (r.byte(), *struct.unpack("<2f", r.take(8))) if kind >= NF4 and kind != AWQ else None
            ops.append((op, kind, variant, head, geometry, rule))
        elif op == DEQUANTISE:
            kind = r.byte()
            need(kind in SHAPES and kind < NF4, f"quantised format {kind}, which this program does not know")
            geometry = [r.byte()] + [r.number() for _ in range(5)] if kind in EIGHTS else None
            ops.append((op, kind, geometry, r.number() if geometry else 0))
        elif op == TRANSPOSE:
            ops.append((op, *(r.number() for _ in range(4))))
        else:
            need(op == COMBINE, f"op {op} of a recipe, which this program does not know")
            form, kind, vectors = r.byte(), r.byte(), r.byte()
            need(form < 18 and form != 13 and 1 <= kind <= 3,
                 f"form {form} of a combination, which this program does not know")
            need(1 <= vectors <= 8 and {LERP: 2, TASK: 3}.get(form & ~1, vectors) == vectors, "another number of vectors")
            need(form < STOCK or vectors > 1, "another number of vectors")
            ops.append((op, form, kind, struct.unpack(f"<{vectors}f", r.take(4 * vectors))))
    return ops


def told(r, most=MAX_CHUNK):
    """What a program leaves to be told: one stream, of so many bytes at most."""
    n = r.number()
    if n == 0:
        return b""
    codec = r.byte()
    need(codec not in BASED and n <= min(most, MAX_CHUNK), "a stream that needs a base, or is too long")
    return decode(codec, r.take(r.number()), n)


def taken(kind, groups, bases, more):
    size, out = ELEMENTS[kind], bytearray()
    bases = bases[: len(bases) // size * size] + more
    for times, stretches in groups:
        once = sum(length for _, length, _ in stretches) * size
        need(len(out) + times * once <= MAX_VALUE, "a value that is too long")
        for k in range(times if once else 0):
            for first, length, step in stretches:
                at = (first + k * step) * size
                need(at >= 0, "an element ahead of the first")
                part = bases[at : at + length * size]
                out += part + bytes(length * size - len(part))
    return bytes(out)


def quantised(r, x, raw, aside, kind, variant, head, geometry, rule):
    """Blocks of numbers; where the chunk's edges cut some, their parts are told."""
    elements, size, sub, _, _ = SHAPES[kind]
    if kind == SCALES_OF:  # a block is a group
        need(geometry[0] < len(SCALES) and 1 <= geometry[4] <= 1 << 30, "scales of another shape")
        elements, size = geometry[4], SCALES[geometry[0]]
    need(len(x) % elements == 0 and head < size, "numbers that are no blocks")
    tail = raw - head - len(x) // elements * size
    need(0 <= tail < size, "blocks of another length")
    around = told(r, head + tail)
    need(len(around) == head + tail, "another number of bytes around the blocks")
    if kind == AWQ:
        left = 2 * (len(x) // max(geometry[2], 1) + 2 + geometry[2]) + len(x) + len(x) // sub + 1
    elif geometry:
        left = 5 * len(x) + len(x) // sub + 1
    else:
        left = len(x) // elements * (5 + 2 * elements // sub) + len(x) + len(x) // sub + 1
    parts = []
    for _ in range(STREAMS):
        parts.append(told(r, left))
        left -= len(parts[-1])
    if kind == AWQ:
        blocks = Channels(kind, variant, Streams(parts), geometry, aside)
    elif rule:
        blocks = Ruled(kind, variant, Streams(parts), geometry, rule)
    elif geometry:
        blocks = Eights(kind, variant, Streams(parts), geometry)
    else:
        blocks = Blocks(kind, variant, Streams(parts))
    return around[:head] + blocks.make(x) + around[head:]


def narrowed(values, kind):
    """Numbers of single precision as the bits of a type, as to_bf16 and to_f16 round them."""
    half = {1: int, 2: to_bf16, 3: to_f16}[kind]
    return [half(x) for x in bits_of(values)]


def averaged(form, kind, c, vectors):
    """An average that goes on from the first vector with one other at a time."""
    nan = float_of(0x7FC00000)
    wide = [None, lambda b: b, lambda b: b << 16, from_f16][kind]

    def rounded_to(v):
        return floats([wide(b) for b in narrowed([nan if x != x else x for x in v], kind)])

    out = vectors[0]
    for k, x in zip(c[1:], vectors[1:]):
        if form in (AVERAGE, AVERAGE_EACH, AVERAGE_APART):
            kept = singles(c[0] * v for v in out)
            if form == AVERAGE_EACH:
                kept = rounded_to(kept)
            if form == AVERAGE_APART:
                out = singles(v + step for v, step in zip(kept, singles(k * y for y in x)))
            else:
                out = [fused(k, y, v) for y, v in zip(x, kept)]
        else:
            way = singles(y - v for y, v in zip(x, out))
            if form == MOVE_APART:
                out = singles(v + step for v, step in zip(out, singles(k * d for d in way)))
            else:
                out = [fused(k, d, v) for d, v in zip(way, out)]
        out = rounded_to(out)
    return out


def combined(form, kind, c, x):
    n = len(x) // len(c)
    vectors = [x[k * n : (k + 1) * n] for k in range(len(c))]

    def each(values):
        values = singles(values)
        if form & 1 == 0 or kind == 1:
            return values
        wide = (lambda b: b << 16) if kind == 2 else from_f16
        return floats([wide(b) for b in narrowed(values, kind)])

    if AVERAGE <= form < TASKS:
        return narrowed(averaged(form, kind, c, vectors), kind)
    if form & ~1 == SUM:
        out = each(c[0] * v for v in vectors[0])
        for k, vector in zip(c[1:], vectors[1:]):
            out = each(a + b for a, b in zip(out, each(k * v for v in vector)))
    elif form & ~1 == MEAN:
        out = vectors[0]
        for vector in vectors[1:]:
            out = each(a + b for a, b in zip(out, vector))
        out = each(quotient(v, c[0]) for v in out)
    elif form & ~1 == TASKS:
        start, total = vectors[0], [0.0] * n
        for k, vector in zip(c[1:], vectors[1:]):
            step = each(k * d for d in each(b - a for b, a in zip(vector, start)))
            total = singles(a + b for a, b in zip(total, step))
        out = each(a + b for a, b in zip(start, each(total)))
    elif form & ~1 == STOCK:
        total = vectors[1]
        for vector in vectors[2:]:
            total = each(a + b for a, b in zip(total, vector))
        mean = each(c[1] * v for v in each(quotient(v, len(vectors) - 1) for v in total))
        out = each(a + b for a, b in zip(mean, each(c[0] * v for v in vectors[0])))
    else:
        start = vectors[2 if form & ~1 == TASK else 0]
        steps = each(c[1] * d for d in each(b - a for b, a in zip(vectors[1], start)))
        out = each(a + step for a, step in zip(vectors[0], steps))
    nan = float_of(0x7FC00000)
    return narrowed([nan if v != v else v for v in out], kind)


def corrected(r, numbers, width):
    """What is told of them: by how many places each differs."""
    planes = [told(r, len(numbers)) for _ in range(width)]
    need(all(len(p) == len(planes[0]) for p in planes) and len(planes[0]) in (0, len(numbers)),
         "another number of differences")
    if not planes[0]:
        return numbers
    mask = (1 << 8 * width) - 1
    return [unordinal(ordinal(x, 8 * width) + unzigzag(int.from_bytes(z, "little")) & mask, 8 * width)
            for x, z in zip(numbers, map(bytes, zip(*planes)))]


def transposed(value, size, rows, cols, skipped, remain):
    """Matrices, each column after column; of their elements some."""
    one, n = rows * cols, len(value) // size
    need(one and n and n % one == 0 and len(value) == n * size, "a value that is no matrices")
    need(skipped + remain <= n, "more elements than there are")
    out = bytearray(len(value))
    for at in range(0, n, one):
        for i in range(rows):
            row = value[(at + i * cols) * size : (at + (i + 1) * cols) * size]
            for k in range(size):  # byte k of each element
                out[(at + i) * size + k : (at + one) * size : rows * size] = row[k::size]
    return bytes(out[skipped * size : (skipped + remain) * size])


def recipe(stored, bases, raw):
    r, value, aside = Cursor(stored), None, b""
    ops = program(r)
    for i, (op, *fields) in enumerate(ops):
        last = i == len(ops) - 1
        if op == TAKE:
            need(value is None, "what was taken is taken again")
            kind, groups = fields
            value = taken(kind, groups, bases, told(r))
        elif op == WIDEN:
            need(isinstance(value, bytes) and kind <= 5, "no floats are widened")
            need(len(value) // ELEMENTS[kind] <= MAX_VALUE // 4, "a value that is too long")
            value = singles_of(value, kind)
        elif op == ROUND:
            need(isinstance(value, list) and fields[0] in (BF16, F16), "what cannot be rounded")
            half, kind = (to_bf16, 2) if fields[0] == BF16 else (to_f16, 3)
            value = struct.pack(f"<{len(value)}H", *(half(x) for x in value))
        elif op == QUANTISE:
            need(isinstance(value, list) and last, "what cannot be quantised")
            value = quantised(r, floats(value), raw, aside, *fields)
        elif op == DEQUANTISE:
            need(isinstance(value, bytes) and kind == 6, "what cannot be dequantised")
            value = dequantised(value, *fields)
        elif op == ASIDE:
            aside = taken(*fields, bases, b"")
        elif op == TRANSPOSE:
            need(isinstance(value, bytes) and value, "what cannot be transposed")
            value = transposed(value, ELEMENTS[kind], *fields)
        else:
            form, kind, c = fields
            width = ELEMENTS[kind]
            need(isinstance(value, list) and last and len(value) % len(c) == 0, "what cannot be combined")
            need(len(value) // len(c) * width == raw, "a combination of another length")
            numbers = corrected(r, combined(form, kind, c, floats(value)), width)
            value = struct.pack(f"<{len(numbers)}{'H' if width == 2 else 'I'}", *numbers)
    r.end()
    if isinstance(value, list):
        value = struct.pack(f"<{len(value)}I", *value)
    need(value is not None and len(value) == raw, "a recipe that makes another number of bytes")
    return value


def decode(codec, stored, raw, base=None, columns=None):
    """The content of a record, of so many bytes."""
    if codec == RAW:
        need(len(stored) == raw, "a record of another length")
        return bytes(stored)
    if codec == ZSTD:
        return zstd(stored, raw)
    if codec == PLANES:
        return planes(stored, raw)
    if codec == PATCH:
        return zstd(stored, raw, base)
    if codec == DELTA:
        return delta(stored, base, raw)
    if codec == ROUNDED:
        return rounded(stored, base, raw)
    if codec == RECIPE:
        return recipe(stored, base, raw)
    need(codec == LOW_RANK, f"codec {codec}, which this program does not know")
    return low_rank(stored, base, columns, raw)


# Segments (package segment)

def regular(path):
    """Opens a regular file to read, and nothing else."""
    f = open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb", 0)
    if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
        f.close()
        raise Damaged("not a regular file")
    return f


class Segments:
    """What is packed: the content of every record, by its hash."""

    def __init__(self, folder, store_id, verify=True):
        self.folder, self.id, self.verify = folder, store_id, verify
        self.places = {}  # by hash: number of a segment and offset, 12 bytes for each record that has it
        self.problems = []
        self.cached = functools.lru_cache(64)(self._based)  # what others are decoded with
        for name in sorted(os.listdir(folder)):
            if re.fullmatch(r"[0-9]{8,10}\.seg", name) and name == f"{int(name[:-4]):08}.seg":
                try:
                    self._list(int(name[:-4]), name)
                except (Damaged, OSError) as e:
                    self.problems.append(f"segments/{name}: {e}")

    def _open(self, name):
        return regular(os.path.join(self.folder, name))

    def _list(self, number, name):
        with self._open(name) as f:
            size = os.fstat(f.fileno()).st_size
            head = os.pread(f.fileno(), FILE_HEADER, 0)
            need(len(head) == FILE_HEADER and head[:8] == b"ckptseg\n", "no header")
            need(crc32c(head[:60]) == int.from_bytes(head[60:], "little"), "a damaged header")
            version, _, named = struct.unpack_from("<HHI", head, 8)
            need(version in SEGMENT_VERSIONS, f"version {version}; this program reads 8 and 9")
            need(named == number and head[16:32] == self.id, "another store's, or another segment")
            entries = self._footer(f.fileno(), number, size)
            for key, at in self._scan(f.fileno(), number, size) if entries is None else entries:
                self.places[key] = self.places.get(key, b"") + struct.pack("<IQ", number, at)

    def _footer(self, fd, number, size):
        """The entries of the footer; None without an intact one."""
        p = os.pread(fd, TRAILER, max(0, size - TRAILER))
        if len(p) < TRAILER or p[:8] != b"ckptend\n" or crc32c(p[:156]) != int.from_bytes(p[156:], "little"):
            return None
        version, _, named, store, start, count = struct.unpack_from("<HHI16sQQ", p, 8)
        end = size - TRAILER
        if version not in SEGMENT_VERSIONS or named != number or store != self.id or count > MAX_RECORDS:
            return None
        if start < FILE_HEADER or start != end - count * ENTRY:
            return None
        table = self._read(fd, count * ENTRY, start)
        if crc32c(table) != int.from_bytes(p[152:156], "little"):
            return None
        return [struct.unpack_from("<32sQ", table, i) for i in range(0, len(table), ENTRY)]

    def _read(self, fd, n, at):
        out = bytearray()
        while len(out) < n and (p := os.pread(fd, min(n - len(out), BLOCK), at + len(out))):
            out += p
        return bytes(out)

    def _scan(self, fd, number, size):
        """The records of a segment without a footer: what has the header of a record of this place."""
        at = FILE_HEADER
        while at + RECORD_HEADER <= size:
            try:
                _, _, _, stored, key = self._header(os.pread(fd, RECORD_HEADER, at), number, at)
            except Damaged:
                at = self._next(fd, at + 8)
                continue
            yield key, at
            at += RECORD_HEADER + stored + 7 & ~7

    def _next(self, fd, at):
        """The next place where a record may start."""
        while p := os.pread(fd, BLOCK, at):
            found = p.find(b"ckr\n")
            while found % 8 and found >= 0:
                found = p.find(b"ckr\n", found + 1)
            if found >= 0:
                return at + found
            at += len(p) & ~7 or 8
        return at

    def _header(self, p, number, at):
        need(len(p) == RECORD_HEADER and p[:4] == b"ckr\n", "no record where one should be")
        kind, codec, raw, stored, key, offset, crc = struct.unpack("<4xBB2xII32s16xQ4xI", p)
        need(crc == crc32c(p[:76] + self.id + number.to_bytes(4, "little")), "a damaged header")
        need(offset == at, "a record of another place")
        need(raw <= MAX_CHUNK and stored <= MAX_CHUNK, "a record is too large")
        return kind, codec, raw, stored, key

    def get(self, key, most=MAX_CHUNK):
        """The content of a record, of so many bytes at most."""
        return self._content(key, most, None)[0]

    def _content(self, key, most, below):
        """The content and the number of a record whose number is less than another's."""
        places = self.places.get(key)
        need(places, f"{key.hex()} is in no segment")
        failed = None
        for number, at in struct.iter_unpack("<IQ", places):
            try:
                return self._decode(key, number, at, most, below)
            except (Damaged, OSError) as e:
                failed = failed or Damaged(f"segments/{number:08}.seg at {at}: {e}")
        raise failed

    def _decode(self, key, number, at, most, below):
        with self._open(f"{number:08}.seg") as f:
            _, codec, raw, stored, named = self._header(os.pread(f.fileno(), RECORD_HEADER, at), number, at)
            need(named == key, "another record than the footer says")
            need(raw <= most, "a record is too large for what needs it")
            p = self._read(f.fileno(), stored, at + RECORD_HEADER)
        need(len(p) == stored, "a record ends too early")
        i = 0
        if codec in BASED:
            need(raw <= MAX_BASED, "a record with a base is too large")
            content, i = self._related(codec, p, raw, below)
        else:
            content = decode(codec, p, raw)
        need(not self.verify or blake3(content) == key, "its content has another hash")
        return content, i

    def _related(self, codec, p, raw, below):
        r = Cursor(p)
        base, i = r.take(32), r.byte()
        numbers = {ROUNDED: (8,), RECIPE: (9,)}.get(codec, range(1, 8))
        need(i in numbers, "a number of no delta")
        need(below is None or i < below, "a base whose number is not lower")
        before, columns = self.cached(base, i), None
        if codec == ROUNDED:
            bases = r.byte()
            need(bases in (1, 2), "another number of bases")
            if bases == 2:
                before += self.cached(r.take(32), i)
        elif codec == RECIPE:
            bases = r.byte()
            need(1 <= bases <= 40, "another number of bases")
            for _ in range(bases - 1):
                before += self.cached(r.take(32), i)
                need(len(before) <= MAX_RECIPE, "bases that are too long")
        elif codec == LOW_RANK:
            columns = self.cached(r.take(32), i)
        return decode(codec, r.rest(), raw, before, columns), i

    def _based(self, key, below):
        return self._content(key, MAX_BASED, below)[0]


# Manifests (package manifest)

class Manifest:
    """Which bytes of which objects a file consists of."""

    def __init__(self, p, size):
        r = Cursor(p)
        need(r.take(4) == b"CKM1", "no manifest that this program reads")
        self.flags = r.number()
        need(self.flags < 4, "a manifest with flags that this program does not know")
        r.take(r.number())  # the format
        self.size = r.number()
        need(self.size == size, f"the manifest is of {self.size} bytes, the file has {size}")
        self.objects = [self._object(r) for _ in range(r.number())]
        self.extents = list(self._extents(r))

    def _object(self, r):
        digest, n = r.take(32), r.number()
        need(n >> 1 <= MAX_OBJECT, "an object is too large")
        return digest, n >> 1, n & 1 == 1

    def _extents(self, r):
        """Object, or None for zeros; offset in it; length."""
        ended, at, used = {}, 0, 0  # used: the objects numbered below it were named
        for _ in range(r.number()):
            op = r.byte()
            need(op < 16, "an extent of another kind")
            source, number, offset = op >> 2, None, 0
            if source == 1:
                number = used
            elif source:
                number = r.number()
            need(number is None or number < len(self.objects), "an object that is none")
            if source == 3:
                offset = r.number()
            elif source == 2:
                offset = ended.get(number, 0)
            length = self.objects[number][1] if source == 1 else r.number()
            at += length
            need(at <= self.size, "extents that are longer than the file")
            if number is not None:
                need(offset + length <= self.objects[number][1], "an extent past the end of its object")
                ended[number], used = offset + length, max(used, number + 1)
            yield number, offset, length
        need(at == self.size, "extents that are shorter than the file")


def parse_list(p, length):
    """The hashes of an object's chunks, and where each starts, and the end."""
    r = Cursor(p)
    need(r.take(4) == b"CKL1", "no list that this program reads")
    form = r.byte()
    need(form < 2, "a list of another form")
    if form == 0:
        last, hashes = r.number(), r.rest()
        need(hashes and len(hashes) % 32 == 0 and 0 < last <= CHUNK_SIZE, "a list that is none")
        lengths = [CHUNK_SIZE] * (len(hashes) // 32 - 1) + [last]
    else:
        lengths = [r.number() for _ in range(r.number())]
        hashes = r.take(32 * len(lengths))
        r.end()
    starts = [0]
    for n in lengths:
        need(0 < n <= MAX_CHUNK, "a chunk of no length, or too long")
        starts.append(starts[-1] + n)
    need(starts[-1] == length, "a list of another length than its object")
    return [hashes[i : i + 32] for i in range(0, len(hashes), 32)], starts


# The tree (package tree)

class Entry:
    """A regular file: what its record says of it."""

    def __init__(self, path, st, record):
        self.path, self.size, self.mode = path, st.st_size, st.st_mode & 0o7777
        self.flags, self.mtime, self.manifest = 0, st.st_mtime_ns, None
        if record is None:
            return
        need(len(record) == TREE_RECORD and record[0] == RECORD_VERSION, "a record of another version")
        need(int.from_bytes(record[4:8], "little") == crc32c(record[:4] + record[8:]), "a damaged record")
        self.flags = record[1]
        if self.flags & PACKED:
            self.mtime = int.from_bytes(record[8:16], "little", signed=True)
            self.manifest = record[24:56]
        if self.flags & EMPTYING:
            self.size = 0

    @property
    def state(self):
        return "packed" if self.flags & HOLLOW else "resident" if self.flags & PACKED else "plain"


class Store:
    def __init__(self, path, verify=True):
        self.path, self.tree = path, os.path.realpath(os.path.join(path, "tree"))
        self.id, self.verify = self._format(), verify

    def _format(self):
        try:
            with open(os.path.join(self.path, "format"), "rb") as f:
                p = f.read(4096)
        except (FileNotFoundError, NotADirectoryError) as e:
            raise Damaged(f"{self.path} is no store of ckptfs: name the store's folder, not its mount; {e}") from e
        body, found, crc = p.rpartition(b"\nsum ")
        need(not found or crc.strip() == b"%08x" % crc32c(body + b"\n"), "format: damaged")
        lines = dict(line.split(b" ", 1) for line in p.splitlines() if b" " in line)
        need(b"ckptfs" in lines, f"{self.path} is no store")
        version = lines[b"ckptfs"].decode("ascii", "replace").strip()
        need(version == str(FORMAT_VERSION),
             f"the store is of version {version}; this program reads {FORMAT_VERSION}")
        need(re.fullmatch(rb"[0-9a-f]{32}", lines.get(b"id", b"").strip()), "format: no id")
        return bytes.fromhex(lines[b"id"].decode())

    @functools.cached_property
    def segments(self):
        return Segments(os.path.join(self.path, "segments"), self.id, self.verify)

    def resolve(self, path):
        """Where a path of the mount lies; links count only as far as they stay in the tree."""
        full = os.path.realpath(os.path.join(self.tree, path.lstrip("/")))
        if os.path.commonpath([self.tree, full]) != self.tree:
            raise Damaged(f"{path} leads out of the store")
        return full

    def entry(self, full):
        """The record of a regular file, from its attribute or from the header of a hollow one."""
        with regular(full) as f:
            st = os.fstat(f.fileno())
            try:
                record = os.getxattr(f.fileno(), XATTR)
            except OSError as e:
                if e.errno not in (errno.ENODATA, errno.ENOTSUP):
                    raise
                record = self._of_header(os.pread(f.fileno(), HOLLOW_HEADER, 0), st.st_size)
        return Entry(full, st, record)

    def _of_header(self, p, size):
        if len(p) < HOLLOW_HEADER or p[:64] != HOLLOW_TEXT or p[64:80] != self.id:
            return None
        stated, crc = struct.unpack_from("<Q4xI", p, 144)
        if crc != crc32c(p[:156]) or stated != size:
            return None
        return p[80:144]

    def read(self, entry):
        """The bytes of a file, in pieces."""
        if not entry.manifest:
            yield from self._local(entry)
            return
        segments = self.segments
        m = Manifest(segments.get(entry.manifest), entry.size)
        lists = functools.lru_cache(16)(lambda digest, length: parse_list(segments.get(digest), length))
        chunk = functools.lru_cache(4)(segments.get)
        for number, offset, length in m.extents:
            if number is None:
                for at in range(0, length, BLOCK):
                    yield bytes(min(BLOCK, length - at))
                continue
            digest, size, listed = m.objects[number]
            hashes, starts = lists(digest, size) if listed else ([digest], [0, size])
            while length:
                i = bisect_right(starts, offset) - 1
                p = chunk(hashes[i])
                need(len(p) == starts[i + 1] - starts[i], "a chunk of another length")
                piece = p[offset - starts[i] : offset - starts[i] + length]
                yield piece
                offset += len(piece)
                length -= len(piece)

    def _local(self, entry):
        with regular(entry.path) as f:
            left = entry.size
            while left and (p := f.read(min(left, BLOCK))):
                left -= len(p)
                yield p


# The program

def shown(path):
    return path if path.isprintable() else repr(path)


def name_of(store, full):
    return os.path.relpath(full, store.tree)


class Program:
    def __init__(self, store):
        self.store, self.failed = store, False
        self.copied = {}  # by device and inode number: the copy of a file with several names

    def fail(self, name, why):
        print(f"{shown(name)}: {why}", file=sys.stderr)
        self.failed = True

    def warn(self, entry):
        if entry.flags & LOST:
            self.fail(name_of(self.store, entry.path), "the disk did not take all that was written to it")

    def missing(self, entry, e):
        remote = " (the file's bytes may be in the store's remote alone)" if entry.flags & REMOTE else ""
        return f"{e}{remote}"

    def ls(self, path):
        full = self.store.resolve(path)
        if not os.path.isdir(full):
            return self.list_file(full)
        for folder, folders, files in os.walk(full, onerror=lambda e: self.fail(e.filename, e.strerror)):
            folders.sort()
            for name in sorted(files):
                one = os.path.join(folder, name)
                if stat.S_ISREG(os.lstat(one).st_mode):
                    self.list_file(one)

    def list_file(self, full):
        name = name_of(self.store, full)
        try:
            e = self.store.entry(full)
            print(f"{e.state:8} {e.size:14} {shown(name)}")
        except BrokenPipeError:
            raise
        except (Damaged, OSError) as e:
            self.fail(name, e)

    def cat(self, path):
        full = self.store.resolve(path)
        if os.path.isdir(full):
            raise Damaged(f"{path} is a folder: ls lists it, cp copies it")
        e = self.store.entry(full)
        self.warn(e)
        try:
            for piece in self.store.read(e):
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        except Damaged as damage:
            self.fail(path, self.missing(e, damage))

    def cp(self, path, dest):
        full, to = self.store.resolve(path), os.path.realpath(dest)
        store = os.path.realpath(self.store.path)
        if os.path.commonpath([store, to]) == store:
            raise Damaged(f"{dest} lies in the store")
        if os.path.lexists(dest):
            raise Damaged(f"{dest} exists")
        self.copy(full, to)

    def copy(self, full, to):
        name = name_of(self.store, full)
        try:
            st = os.lstat(full)
            if stat.S_ISDIR(st.st_mode):
                os.mkdir(to, 0o700)
                for child in sorted(os.listdir(full)):
                    self.copy(os.path.join(full, child), os.path.join(to, child))
                self.describe(full, to, st, st.st_mode & 0o7777, st.st_mtime_ns)
            elif stat.S_ISLNK(st.st_mode):
                os.symlink(os.readlink(full), to)
                self.own(to, st)
                os.utime(to, ns=(st.st_mtime_ns, st.st_mtime_ns), follow_symlinks=False)
            elif stat.S_ISREG(st.st_mode):
                self.copy_file(full, to)
            else:
                self.fail(name, "neither a file, a folder nor a link: left out")
        except (Damaged, OSError) as e:
            self.fail(name, e)

    def own(self, to, st):
        """Root gives a copy its owner, where the disk has owners."""
        if os.geteuid() == 0:
            try:
                os.chown(to, st.st_uid, st.st_gid, follow_symlinks=False)
            except OSError:
                pass

    def describe(self, full, to, st, mode, mtime):
        """Gives a file or a folder the attributes, owner, mode and time of what it is a copy of."""
        for name in os.listxattr(full, follow_symlinks=False):
            if not name.startswith("user.") or name != XATTR_ARCH and f"{name}.".startswith(f"{XATTR}."):
                continue
            try:
                os.setxattr(to, name, os.getxattr(full, name, follow_symlinks=False), follow_symlinks=False)
            except OSError as e:
                self.fail(name_of(self.store, full), f"its attribute {shown(name)} is not kept: {e.strerror}")
        self.own(to, st)
        has = os.lstat(to)
        if has.st_uid != st.st_uid:
            mode &= ~stat.S_ISUID  # it would be a right of another user
        if has.st_gid != st.st_gid:
            mode &= ~stat.S_ISGID
        os.chmod(to, mode)
        os.utime(to, ns=(mtime, mtime))

    def copy_file(self, full, to):
        st = os.lstat(full)
        other = self.copied.get((st.st_dev, st.st_ino))
        if other is not None:
            try:
                os.link(other, to)
                return
            except FileExistsError:
                raise
            except OSError:
                pass  # the disk has no hard links, or no more of this file: it gets a copy of its own
        e = self.store.entry(full)
        self.warn(e)
        # A copy that is killed leaves no file that looks whole.
        part = os.path.join(os.path.dirname(to), f".ckptfs-part-{os.getpid()}")
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(fd, "wb") as f:
                for piece in self.store.read(e):
                    if piece.count(0) == len(piece):
                        f.seek(len(piece), os.SEEK_CUR)
                    else:
                        f.write(piece)
                f.truncate(e.size)
            self.describe(full, part, st, e.mode, e.mtime)
            os.rename(part, to)
        except BaseException as damage:
            os.unlink(part)
            if isinstance(damage, Damaged):
                raise Damaged(self.missing(e, damage)) from damage
            raise
        if st.st_nlink > 1:
            self.copied[st.st_dev, st.st_ino] = to


def main():
    parser = argparse.ArgumentParser(description="Reads the files of a ckptfs store without ckptfs.")
    parser.add_argument("store", help="the store's folder")
    parser.add_argument("--no-verify", action="store_true", help="do not compare what is read with its hash")
    commands = parser.add_subparsers(dest="command", required=True)
    ls = commands.add_parser("ls", help="state, size and path of every file")
    ls.add_argument("path", nargs="?", default="")
    commands.add_parser("cat", help="the bytes of a file").add_argument("path")
    cp = commands.add_parser("cp", help="copies a file or a folder out")
    cp.add_argument("path")
    cp.add_argument("dest")
    args = parser.parse_args()
    sys.setrecursionlimit(10_000)  # folders may lie deep
    sys.stdout.reconfigure(errors="backslashreplace")
    try:
        store = Store(args.store, not args.no_verify)
        program = Program(store)
        {"ls": program.ls, "cat": program.cat, "cp": program.cp}[args.command](
            args.path, *([args.dest] if args.command == "cp" else []))
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Damaged, OSError) as e:
        print(e, file=sys.stderr)
        return 1
    for problem in store.segments.problems if "segments" in vars(store) else []:
        print(problem, file=sys.stderr)
    return 1 if program.failed else 0


if __name__ == "__main__":
    sys.exit(main())
