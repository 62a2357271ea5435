"""Calls of gRPC by their path, with bytes as messages.

unary(channel, PUT)(body)                     one answer
unary_stream(channel, RANGE_STREAM)(body)     an iterator of answers
stream(channel, WATCH)(bodies)                the same, for an iterator of requests
"""

import grpc


def unary(channel: grpc.Channel, path: str) -> "grpc.UnaryUnaryMultiCallable[bytes, bytes]":
    return channel.unary_unary(path)


def unary_stream(channel: grpc.Channel, path: str) -> "grpc.UnaryStreamMultiCallable[bytes, bytes]":
    return channel.unary_stream(path)


def stream(channel: grpc.Channel, path: str) -> "grpc.StreamStreamMultiCallable[bytes, bytes]":
    return channel.stream_stream(path)
