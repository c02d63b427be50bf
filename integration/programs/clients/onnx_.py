"""ONNX with its tensors in a file beside the model, and inside."""
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from state import arrays

EXACT = True


def save(dir, version, size):
    weights = [numpy_helper.from_array(v, k) for k, v in arrays(version, size).items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 256])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 256])
    graph = helper.make_graph([helper.make_node("Add", ["x", "layer0/weight"], ["y"])], "g", [x], [y], weights)
    model = helper.make_model(graph)
    onnx.save_model(model, os.path.join(dir, "inside.onnx"))
    data = os.path.join(dir, "model.onnx.data")
    if os.path.exists(data):
        os.remove(data)  # the library appends to what it finds
    onnx.save_model(model, os.path.join(dir, "model.onnx"), save_as_external_data=True, all_tensors_to_one_file=True,
                    location="model.onnx.data", size_threshold=1024)


def saver(dir, version, size):
    arrays(version, size)
    return lambda: save(dir, version, size)


def load(dir):
    m = onnx.load(os.path.join(dir, "model.onnx"))
    return {w.name: np.array(numpy_helper.to_array(w)) for w in m.graph.initializer}


def ways(dir):
    onnx.checker.check_model(os.path.join(dir, "model.onnx"))
    m = onnx.load(os.path.join(dir, "inside.onnx"))
    yield "inside", {w.name: np.array(numpy_helper.to_array(w)) for w in m.graph.initializer}
