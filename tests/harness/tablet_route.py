"""What drivers are told of where a tablet stands: the custom payloads of TABLETS_ROUTING_V1 and its second version."""

import struct
from dataclasses import dataclass
from uuid import UUID

V1, V2 = "TABLETS_ROUTING_V1", "TABLETS_ROUTING_V2_EXPERIMENTAL"
PAYLOAD_V1, PAYLOAD_V2 = "tablets-routing-v1", "tablets-routing-v2"
FEATURE = ["--experimental-features", "tablets-routing-v2"]
BLOCKS = range(16)


@dataclass(frozen=True)
class Tablet:
    after: int
    last: int
    replicas: tuple  # (host id, shard)
    version: int | None

    def block(self, number, wrong_by=0):
        """The byte behind an EXECUTE of a driver that has this version, or one that differs there."""
        return bytes([number << 4 | ((self.version >> 4 * number & 15) + wrong_by) % 16])


def fields(data):
    """The values of a tuple."""
    at, found = 0, []
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        found.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return found


def tablet(payload):
    """The tablet of a custom payload; None without."""
    if not payload:
        return None
    [(key, data)] = payload.items()
    after, last, replicas, *version = fields(data)
    assert key == (PAYLOAD_V2 if version else PAYLOAD_V1)
    (count,) = struct.unpack_from(">i", replicas)
    pairs = [fields(replica) for replica in fields(replicas[4:])]
    assert len(pairs) == count
    number = (struct.unpack(">Q", data)[0] for data in version)
    return Tablet(
        struct.unpack(">q", after)[0],
        struct.unpack(">q", last)[0],
        tuple((UUID(bytes=host), struct.unpack(">i", shard)[0]) for host, shard in pairs),
        next(number, None),
    )
