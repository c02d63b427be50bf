"""Writes sums.json: of numbers that follow a rule, torch's norm and sum of the first n along the last dimension, as bits.

    ATEN_CPU_CAPABILITY=avx2 python sums.py > sums.json
"""
import numpy as np, torch

torch.set_num_threads(1)
LENGTHS = [*range(1, 110), 255, 256, 511, 512, 513, 4097, 8200, 70003, 131072, 131111, 300001]
i = np.arange(max(LENGTHS), dtype=np.uint64) * np.uint64(2654435761) & np.uint64(0xffffffff)
numbers = torch.from_numpy((i.astype(np.int64) - (1 << 31)).astype(np.float32) / np.float32(1 << 33))
bits = lambda x: x.view(torch.int32).item() & 0xffffffff
rows = [[n, bits(torch.linalg.vector_norm(numbers[None, :n], dim=1)), bits(torch.sum(numbers[None, :n], dim=1))] for n in LENGTHS]
print("[" + ",\n ".join(map(str, rows)) + "]")
