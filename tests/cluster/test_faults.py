"""What happens to single nodes while applications write and read at QUORUM: nothing that was acknowledged is lost, and nobody is told
an error that was not promised.
"""

from harness.witness import NO_ANSWER, Witness

REQUESTS = 1_500


def test_a_node_is_killed_and_comes_back(cluster):
    with Witness(cluster) as witness:
        witness.more(REQUESTS)
        witness.phase("dead")
        cluster.kill(3)
        witness.more(REQUESTS)
        witness.phase("back")
        cluster.start(3)
        witness.more(REQUESTS)
        account = witness.finish()
    account.check()


def test_a_node_freezes_and_goes_on(cluster):
    with Witness(cluster) as witness:
        witness.more(REQUESTS)
        witness.phase("frozen")
        cluster.pause(3)
        witness.more(REQUESTS)
        witness.phase("thawed")
        cluster.resume(3)
        witness.more(REQUESTS)
        account = witness.finish()
    # What the frozen node was asked it answers when it goes on, or its client stops waiting.
    account.check({"frozen": NO_ANSWER, "before": NO_ANSWER})


def test_all_nodes_are_restarted_one_after_another(cluster):
    with Witness(cluster) as witness:
        witness.more(REQUESTS)
        for number in (1, 2, 3):
            witness.phase(f"without {number}")
            cluster.stop(number)
            witness.more(REQUESTS)
            witness.phase(f"with {number} again")
            cluster.start(number)
            witness.sees_all()
            witness.more(REQUESTS)
        account = witness.finish()
    account.check()
