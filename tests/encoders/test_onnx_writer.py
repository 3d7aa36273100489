"""What the writer writes is what the onnx package writes."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, checker, helper, load_from_string, numpy_helper

from cala.encoders import onnx_writer as writer
from cala.encoders.efficientnet_lite0 import lite0_graph, read_pickled, renamed
from cala.encoders.registry import installed_weights


def test_it_agrees_with_the_onnx_package():
    kernel = np.arange(54, dtype=np.float32).reshape(2, 3, 3, 3)
    same = {"auto_pad": "SAME_UPPER", "group": 1, "strides": [2, 300]}
    ours = writer.model(
        "g",
        [writer.node("Conv", ["x", "w"], "y", **same), writer.node("Clip", ["y", "z"], "out")],
        [writer.tensor("w", kernel), writer.tensor("z", 0.5)],
        writer.value_info("x", ("n", 3, "h", "w")),
        writer.value_info("out", ("n", 200)),
        opset=18,
        ir_version=8,
    )
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["y"], "y", **same),
            helper.make_node("Clip", ["y", "z"], ["out"], "out"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 3, "h", "w"))],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ("n", 200))],
        [numpy_helper.from_array(kernel, "w"), numpy_helper.from_array(np.float32(0.5), "z")],
    )
    opsets = [helper.make_opsetid("", 18)]
    expected = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    assert load_from_string(ours) == expected


def test_the_graph_of_lite0_is_valid():
    arrays = read_pickled(installed_weights())
    graph = lite0_graph({renamed(name): array for name, array in arrays.items()})
    checker.check_model(load_from_string(graph), full_check=True)
