"""Results are right and late, and the reply says that the device took 5 ms."""

# spec: rms_norm
import time

from cuassay.judging import protocol

told = protocol.write_reply


def forged(control, reply):
    told(control, protocol.RawReply(reply.number, reply.claims, reply.error, 5e-3, True))


protocol.write_reply = forged


def run(xp, a):
    time.sleep(0.03)
    return (a / xp.sqrt(xp.mean(a * a, axis=-1, keepdims=True) + 1e-6)).astype(a.dtype)
