"""Three nodes that talk by TLS with mutual certificates, and compressed."""

import ipaddress
import signal
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from harness import Cluster, Node, NodeFailed
from harness.cluster import address, eventually
from harness.node import free_ports, run_ceto
from harness.witness import Witness

NODES = (1, 2, 3)
STRANGER = 5
REQUESTS = 500
PADDING = 4_000
ESTABLISHED = "01"  # as proc(5) has it
OPTIONS = """\
internode_compression: all
server_encryption_options:
  internode_encryption: all
  certificate: {certificate}
  keyfile: {key}
  truststore: {authority}
  require_endpoint_verification: true
"""


def openssl(*arguments, cwd):
    subprocess.run(["openssl", *arguments], cwd=cwd, check=True, capture_output=True, text=True)


class Authority:
    """Vouches for certificates, with files of its own in a directory."""

    def __init__(self, directory):
        self.directory = directory
        directory.mkdir()
        self.certificate = directory / "authority.pem"
        request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        openssl(*request, "-keyout", "authority.key", "-out", "authority.pem", "-subj", "/CN=authority", cwd=directory)

    def certify(self, host):
        """A certificate for an address: paths of it and its key."""
        (self.directory / f"{host}.ext").write_text(f"subjectAltName=IP:{ipaddress.ip_address(host)}\n")
        request = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={host}"]
        openssl(*request, "-keyout", f"{host}.key", "-out", f"{host}.csr", cwd=self.directory)
        sign = ["x509", "-req", "-days", "2", "-in", f"{host}.csr", "-extfile", f"{host}.ext", "-CAcreateserial"]
        openssl(
            *sign, "-CA", "authority.pem", "-CAkey", "authority.key", "-out", f"{host}.pem", cwd=self.directory
        )
        return self.directory / f"{host}.pem", self.directory / f"{host}.key"


def options_file(directory, authority, host, trusted=None):
    certificate, key = authority.certify(host)
    path = directory / f"{host}.yaml"
    trusted = trusted or authority
    path.write_text(OPTIONS.format(certificate=certificate, key=key, authority=trusted.certificate))
    return path


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("encryption")


@pytest.fixture(scope="module")
def authority(directory):
    return Authority(directory / "ours")


@pytest.fixture(scope="module")
def tls_port():
    return free_ports([address(number) for number in (*NODES, STRANGER)], 1)[0]


@pytest.fixture(scope="module")
def cluster(request, directory, authority, tls_port):
    cluster = Cluster(
        3, options=["--ssl-storage-port", str(tls_port)], runtime=request.config.getoption("--runtime")
    )
    for node in cluster:
        node.options = [*node.options, "--options-file", str(options_file(directory, authority, node.host))]
    try:
        yield cluster.form().known_to_clients()
    finally:
        cluster.remove()


def connections(cluster, port):
    """How many connections stand between nodes to this port of theirs."""
    hosts = {node.host for node in cluster}
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *_ = line.split()
        ends = [(socket.inet_ntoa(bytes.fromhex(end[:8])[::-1]), int(end[9:], 16)) for end in (local, remote)]
        found += state == ESTABLISHED and ends[1][0] in hosts and ends[1][1] == port
    return found


def sent_bytes(cluster):
    metrics = (metric for node in cluster for metric in node.metrics().items())
    return sum(value for name, value in metrics if name.startswith("ceto_rpc_sent_bytes_total"))


def test_quorum_reads_and_writes_go_by_tls_and_survive_a_restart(cluster, tls_port):
    with Witness(cluster, padding=PADDING) as witness:
        before = sent_bytes(cluster)
        witness.phase("compressed")
        witness.more(REQUESTS)
        assert connections(cluster, tls_port) >= len(NODES) * (len(NODES) - 1), "each node calls each other by TLS"
        assert connections(cluster, cluster.ports[2]) == 0, "nobody is called in the clear"
        written = witness.account().acknowledged("compressed") * 2 // 3 * PADDING
        sent = sent_bytes(cluster) - before
        assert sent < written, f"{written} bytes that repeat went to two more nodes each, in {sent} bytes"
        cluster.restart(2)
        witness.sees_all()
        witness.more(REQUESTS)
        witness.finish().check()


def test_lost_voters_are_looked_for_by_tls(cluster, directory, tls_port):
    """A command that finds nobody because it asks in the clear would have a living majority given up."""
    cluster.has_voters()
    cluster.stop(1)
    node = cluster.node(1)
    recover = ["recover-metadata", "--workdir", str(node.workdir)]
    options = ["--options-file", str(directory / f"{node.host}.yaml"), "--ssl-storage-port", str(tls_port)]
    sentence = "the lost voters will never be started again: " + ", ".join(
        f"{cluster.node(number).host}:{cluster.ports[2]}" for number in (2, 3)
    )
    try:
        shown = run_ceto(*recover, *options)
        assert "3, of which 3 are there" in shown and "nothing is lost" in shown, shown
        with pytest.raises(NodeFailed, match="nothing is lost"):
            run_ceto(*recover, *options, "--confirm", sentence)
        for words in ([], ["--confirm", sentence]):
            with pytest.raises(NodeFailed, match="server_encryption_options.*--options-file"):
                run_ceto(*recover, *words)
    finally:
        cluster.start(1)
    with Witness(cluster) as witness:
        witness.more(REQUESTS)
        witness.finish().check()


@pytest.mark.parametrize("certified", [False, True], ids=["no certificate", "a certificate of somebody else"])
def test_a_stranger_is_not_talked_to(cluster, directory, authority, tls_port, certified):
    client = ssl.create_default_context(cafile=str(authority.certificate))
    client.check_hostname = False
    if certified:
        name = f"stranger-{certified}"
        certificate, key = Authority(directory / name).certify(address(STRANGER))
        client.load_cert_chain(certificate, key)
    with socket.create_connection((cluster.node(1).host, tls_port), timeout=30) as plain:
        # In TLS 1.3 the refusal of a client comes when it reads.
        with pytest.raises((ssl.SSLError, ConnectionError)), client.wrap_socket(plain) as encrypted:
            encrypted.sendall(b"\0" * 64)
            assert encrypted.recv(1) != b"", "closed without a reason"


@pytest.mark.parametrize("stranger", ["plain", "another authority"])
def test_a_node_without_a_certificate_of_ours_does_not_come_in(cluster, directory, authority, tls_port, tmp_path, stranger):
    options = ["--seeds", address(1), "--ssl-storage-port", str(tls_port)]
    if stranger == "another authority":
        theirs = Authority(tmp_path / "theirs")
        path = options_file(tmp_path, theirs, address(STRANGER), trusted=authority)
        options += ["--options-file", str(path)]
    node = Node(workdir=tmp_path / "node", smp=1, memory="256M", host=address(STRANGER), ports=cluster.ports, options=options)
    with Witness(cluster) as witness:
        printed = node._spawn()
        try:
            # It waits for its seeds, or ends because one of them refuses it.
            while (line := printed.get(timeout=60)) is not None and "waiting to be let in by the seeds" not in line:
                pass
            witness.more(REQUESTS)
            assert not any("serving CQL" in line for line in node.lines), node.log()
        finally:
            node.kill9()
        account = witness.finish()
    account.check()
    with cluster.driver(only=1) as driver:
        peers = driver.connect().execute("SELECT peer FROM system.cluster_status")
        assert {row.peer for row in peers} == {node.host for node in cluster}


def peer_certificate(node, port, authority):
    """The certificate that a node shows to one that connects now."""
    certificate, key = authority.certify(address(STRANGER))
    client = ssl.create_default_context(cafile=str(authority.certificate))
    client.check_hostname = False
    client.load_cert_chain(certificate, key)
    with socket.create_connection((node.host, port), timeout=30) as plain, client.wrap_socket(plain) as encrypted:
        return encrypted.getpeercert()["serialNumber"]


def established(port):
    """The connections to this port that nodes have with each other, by both ends' ports."""
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return {(local, remote) for _, local, remote, state, *_ in lines if state == ESTABLISHED and remote.endswith(f":{port:04X}")}


def test_certificates_are_read_again_at_sighup(cluster, authority, tls_port):
    node = cluster.node(2)
    first = peer_certificate(node, tls_port, authority)

    def hang_up(*words):
        before = len(node.lines)
        node.process.send_signal(signal.SIGHUP)
        eventually(f"a line with {words}", lambda: any(all(word in line for word in words) for line in node.lines[before:]))

    with Witness(cluster) as witness:
        witness.more(REQUESTS)
        standing = established(tls_port)
        certificate, key = authority.certify(node.host)
        hang_up("INFO", "SIGHUP", "new connections between nodes use the certificate in", str(certificate))
        second = peer_certificate(node, tls_port, authority)
        assert second != first, "a new connection gets the new certificate"
        witness.more(REQUESTS)
        assert standing <= established(tls_port), "connections that stood still stand"

        # What cannot be used is named, and changes nothing: a key of another certificate, no key, no file.
        good = key.read_bytes()
        for damaged, words in [
            ((authority.directory / f"{cluster.node(1).host}.key").read_bytes(), "is not the key of the certificate in"),
            (b"nothing", "no private key in PEM form"),
            (None, "No such file"),
        ]:
            key.unlink() if damaged is None else key.write_bytes(damaged)
            hang_up("ERROR", "SIGHUP", str(key), words)
            assert peer_certificate(node, tls_port, authority) == second
        key.write_bytes(good)
        hang_up("INFO", "SIGHUP", "new connections between nodes use the certificate in")
        cluster.restart(3)
        witness.sees_all()
        witness.more(REQUESTS)
        witness.finish().check()
