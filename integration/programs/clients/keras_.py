"""Keras on torch: .keras, .h5 and .weights.h5."""
import functools
import os

os.environ["KERAS_BACKEND"] = "torch"
import keras  # noqa: E402
import numpy as np  # noqa: E402


@functools.lru_cache(maxsize=2)
def model(version, size):
    width = max(32, int((size / 4 / 2) ** 0.5))
    keras.utils.set_random_seed(7)
    m = keras.Sequential([keras.Input((16,)), keras.layers.Dense(width, name="a"), keras.layers.Dense(width, name="b"),
                          keras.layers.BatchNormalization(name="n"), keras.layers.Dense(1, name="head")])
    m.get_layer("head").set_weights([np.full((width, 1), version, np.float32), np.ones(1, np.float32)])
    return m


def save(dir, version, size):
    m = model(version, size)
    m.save(os.path.join(dir, "model.keras"))
    m.save(os.path.join(dir, "model.h5"))
    m.save_weights(os.path.join(dir, "model.weights.h5"))


def saver(dir, version, size):
    m = model(version, size)
    return lambda: m.save(os.path.join(dir, "model.keras"))


def load(dir):
    return keras.models.load_model(os.path.join(dir, "model.keras")).get_weights()


def ways(dir):
    m = keras.models.load_model(os.path.join(dir, "model.h5"), compile=False)
    yield "h5", m.get_weights()
    m.set_weights([w * 0 for w in m.get_weights()])
    m.load_weights(os.path.join(dir, "model.weights.h5"))
    yield "weights", m.get_weights()
    yield "predicts", m.predict(np.ones((2, 16), np.float32), verbose=0)


SAME_NAMES = True
