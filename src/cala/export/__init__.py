"""A model as one ONNX file that runs, and can still learn classes, without cala or torch."""

from cala.extras import needs

with needs("export"):
    from cala.export.export import Exported, export_onnx

__all__ = ["Exported", "export_onnx"]
