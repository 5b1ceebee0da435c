"""Models of finished runs: saved beside the record, loaded, verified and exported.

- ``file``: the file ``model.safetensors`` with a sealed copy of the record
- ``model``: models built again from both
- ``verify``: a record compared with its weights, data and metrics
- ``export``: one task's network as ONNX
"""
