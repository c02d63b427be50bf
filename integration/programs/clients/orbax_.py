"""Orbax's CheckpointManager: each step is written in a folder beside its place, which is then renamed; old ones are removed."""
import logging
import os

import jax
import orbax.checkpoint as ocp
from state import arrays

logging.getLogger("absl").setLevel(logging.ERROR)
jax.config.update("jax_platforms", "cpu")


def manager(dir):
    return ocp.CheckpointManager(os.path.join(dir, "orbax"), options=ocp.CheckpointManagerOptions(max_to_keep=2, create=True))


def tree(version, size):
    return {k.replace("/", "_"): jax.numpy.asarray(v) for k, v in arrays(version, size).items()}


def save(dir, version, size):
    with manager(dir) as m:
        for step in (10 * version, 10 * version + 1):
            m.save(step, args=ocp.args.StandardSave(tree(step, size)))
        m.wait_until_finished()


def saver(dir, version, size):
    made = tree(version, size)

    def run():
        with manager(dir) as m:
            m.save(version, args=ocp.args.StandardSave(made))
            m.wait_until_finished()
    return run


def load(dir):
    with manager(dir) as m:
        return m.restore(m.latest_step(), args=ocp.args.StandardRestore())


def ways(dir):
    with manager(dir) as m:
        yield "steps", list(m.all_steps())
        for step in m.all_steps():
            yield f"step {step}", m.restore(step, args=ocp.args.StandardRestore())


SAME_NAMES = False  # OCDBT names its files at random
