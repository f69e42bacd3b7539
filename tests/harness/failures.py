"""What a driver's failure says."""

import time

NOTED_SECONDS = 1.0
POLL_SECONDS = 0.001


def said_by_hosts(failure):
    """The error of each host that a NoHostAvailable is about; none when the driver had no host to ask.

    The driver starts the attempt on the next host before it notes why, in another thread, so on a busy machine a request can fail for
    want of further hosts just before the one that refused it is noted.
    """
    deadline = time.monotonic() + NOTED_SECONDS
    while not failure.errors and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return list(failure.errors.values())
