"""NCCL between GPUs that are not there: what is sent in a group arrives when it ends, each on its own stream."""

from __future__ import annotations

import ctypes


class FakeNccl:
    """The names of `cupy.cuda.nccl` that are used; `moved` counts bytes."""

    NCCL_FLOAT32 = 7
    available = True

    def __init__(self, memory):
        self.memory, self.moved, self._group = memory, 0, None
        self.NcclCommunicator = _Maker(self)

    def groupStart(self):
        assert self._group is None
        self._group = []

    def groupEnd(self):
        """Match every sending with the receiving that waits for it."""
        calls, self._group = self._group, None
        sent = {(rank, peer): (address, n, stream) for kind, rank, peer, address, n, stream in calls if kind == "send"}
        received = {(peer, rank): (to, n, stream) for kind, rank, peer, to, n, stream in calls if kind == "recv"}
        assert len(sent) + len(received) == len(calls), "one message from one GPU to another in a group"
        assert sent.keys() == received.keys(), "NCCL waits for ever"
        for pair, (source, n, stream) in sent.items():
            target, room, other = received[pair]
            assert n == room, "NCCL needs equal counts"
            self._move(source, target, 4 * n, stream, other)

    def call(self, kind, communicator, address, count, datatype, peer, stream):
        """Note one call of a group."""
        assert self._group is not None, "several GPUs of one thread need a group"
        assert datatype == self.NCCL_FLOAT32
        assert all(isinstance(one, int) for one in (address, count, peer, stream))
        assert self.memory.holds(address, 4 * count)
        assert self.memory.device_of(address) == communicator.device, "memory of another GPU"
        assert self.memory.streams.all[stream].device == communicator.device, "a stream of another GPU"
        self._group.append((kind, communicator.rank, peer, address, count, stream))

    def _move(self, source, target, size, stream, other):
        """Copy when both streams have come so far."""
        streams = self.memory.streams.all
        self.moved += size
        streams[stream].synchronize()
        streams[other].do(lambda: ctypes.memmove(target, source, size))
        streams[other].synchronize()


class _Maker:
    def __init__(self, nccl):
        self._nccl = nccl

    def initAll(self, devices):
        """Return a communicator for each GPU."""
        assert isinstance(devices, list)
        assert len(set(devices)) == len(devices), "NCCL refuses two ranks on one GPU"
        return [_Communicator(self._nccl, rank, device) for rank, device in enumerate(devices)]


class _Communicator:
    def __init__(self, nccl, rank, device):
        self._nccl, self.rank, self.device = nccl, rank, device

    def send(self, sendbuf, count, datatype, peer, stream):
        self._nccl.call("send", self, sendbuf, count, datatype, peer, stream)

    def recv(self, recvbuf, count, datatype, peer, stream):
        self._nccl.call("recv", self, recvbuf, count, datatype, peer, stream)
