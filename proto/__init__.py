"""The .proto text of every message this project speaks, and the generator.

The .proto files lie under the path their Python modules have (`proto/kvstore/wire/gen/x.proto` →
`kvstore/wire/gen/x_pb2.py`), because protoc derives the generated import lines from that path.
"""
