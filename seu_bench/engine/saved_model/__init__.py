"""Models of finished runs: saved beside the record, loaded, verified and exported.

- ``file``: the file ``model.safetensors``, and the sealed copy of the record in it
- ``load``: networks built again from a record and its weights
- ``verify``, ``checks``: a record compared with its weights, data and metrics
- ``export``: one task's network as ONNX
"""
