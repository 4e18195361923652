"""It asks a server on the network. The test puts the port in, where one listens."""

# spec: rms_norm
import socket

socket.create_connection(("127.0.0.1", int("@PORT@")), timeout=5).close()


def run(xp, a):
    return (a / xp.sqrt(xp.mean(a * a, axis=-1, keepdims=True) + 1e-6)).astype(a.dtype)
