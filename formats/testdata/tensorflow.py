#!/usr/bin/env python3
"""Write checkpoints as TensorFlow does: one file of data, and seven of at most 400 bytes, or little more.

    python3 tensorflow.py [FOLDER]      # needs tensorflow-cpu 2.21, which nothing else here does; FOLDER is this one by default

The object graph in them is in no fixed order, so what exists is kept.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.remove(HERE)  # or this is tensorflow
OUT = os.path.join(os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else HERE, "tensorflow")

import numpy as np
import tensorflow as tf


def main():
    def ramp(*shape, dtype="f4"):
        return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)

    tree = {"kernel": tf.Variable(ramp(20, 30)), "half": tf.Variable(tf.cast(ramp(5), tf.bfloat16)), "flags": tf.Variable([True, False]),
            "scalar": tf.Variable(np.float64(2.5)), "empty": tf.Variable(ramp(0, 3)), "text": tf.Variable("words")}
    tree["layer.1"] = {"größe": tf.Variable(ramp(7, dtype="i8")), "a/b": tf.Variable(ramp(2, 2, dtype="u1"))}
    for name, bytes in ("one", None), ("several", 400):
        options = None
        if bytes:
            options = tf.train.CheckpointOptions(experimental_sharding_callback=tf.train.experimental.MaxShardSizePolicy(bytes))
        if not os.path.exists(os.path.join(OUT, name + ".index")):
            tf.train.Checkpoint(**{k: tf.train.Checkpoint(**v) if isinstance(v, dict) else v for k, v in tree.items()}).write(os.path.join(OUT, name), options)


if __name__ == "__main__":
    os.makedirs(OUT, exist_ok=True)
    main()
