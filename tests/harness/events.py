"""Connections that hear of events, byte by byte."""

import struct

from harness import wire


class Listener(wire.Connection):
    """A connection that registers for events."""

    def __init__(self, node, *events, version=4):
        super().__init__(node, version=version)
        self.startup()
        body = struct.pack(">H", len(events)) + b"".join(map(wire.string, events))
        assert self.ask(wire.REGISTER, body).opcode == wire.READY

    def next(self):
        """The body of the next event."""
        frame = self.recv()
        assert (frame.opcode, frame.stream) == (wire.EVENT, -1)
        return frame.body

    def hears(self, body):
        assert self.next() == body

    def hears_nothing(self):
        assert self.ask(wire.OPTIONS).opcode == wire.SUPPORTED
