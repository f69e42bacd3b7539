"""cassandra-stress, from the last distribution of Cassandra that Maven Central has."""

import re

from harness import suites

VERSION = "4.0-alpha2"
OPERATIONS, THREADS = 2000, 4
SECONDS = 300
PREDEFINED = {
    "write": f"write n={OPERATIONS}",
    "write again, then read": f"write n={OPERATIONS} no-warmup -pop seq=1..{OPERATIONS} + read n={OPERATIONS} no-warmup -pop seq=1..{OPERATIONS}",
    "mixed": f"write n={OPERATIONS} no-warmup -pop seq=1..{OPERATIONS} + mixed ratio(write=1,read=3) n={OPERATIONS} no-warmup -pop dist=uniform(1..{OPERATIONS})",
    "counters": f"counter_write n={OPERATIONS} no-warmup -pop seq=1..{OPERATIONS} + counter_read n={OPERATIONS} no-warmup -pop seq=1..{OPERATIONS}",
    "compressed by LZ4": f"write n={OPERATIONS} -mode native cql3 compression=lz4",
    "its own table options": f"write n={OPERATIONS} -schema compaction(strategy=LeveledCompactionStrategy) compression=LZ4Compressor",
}
# Cassandra of that time reaches into packages that Java has closed since.
OPENED = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.io", "java.nio", "sun.nio.ch")]
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>suites</groupId><artifactId>stress</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.cassandra</groupId><artifactId>apache-cassandra</artifactId>
<version>{VERSION}</version><type>tar.gz</type><classifier>bin</classifier></dependency></dependencies></project>
"""


def fetch(directory):
    (directory / "pom.xml").write_text(POM)
    suites.run("mvn", "-q", "-B", "dependency:unpack-dependencies", f"-DoutputDirectory={directory}", cwd=directory)


def distribution():
    """Its directory."""
    return suites.fetched(f"apache-cassandra-{VERSION}", fetch) / f"apache-cassandra-{VERSION}"


def run(state, runs, nodes=1):
    """Run cassandra-stress with each of these arguments, one after another, on new nodes: what each run printed."""
    home = distribution()
    classes = f"{home}/conf:{home}/tools/lib/stress.jar:{home}/lib/*"
    settings = [f"-Dcassandra.storagedir={state}", "-Dlogback.configurationFile=logback-tools.xml"]
    java = ["java", "-Xmx512m", *OPENED, *settings, "-cp", classes, "org.apache.cassandra.stress.Stress"]
    script = [f"ccm create stress -n {nodes} --vnodes", "ccm start"]
    for number, arguments in enumerate(runs):
        words = [*java, *arguments, "-rate", f"threads={THREADS}", "-node", "127.0.0.1"]
        script.append(" ".join(f"'{word}'" for word in words) + f" > '{state}/{number}.txt' 2>&1")
    said = suites.run_apart(["sh", "-c", "\n".join(script)], state, state, SECONDS)
    outputs = [state / f"{number}.txt" for number in range(len(runs))]
    assert all(output.exists() for output in outputs), said
    return [output.read_text() for output in outputs]


def check(printed):
    """It did all of its operations, and none of them failed."""
    errors = re.search(r"^Total errors +: +(\d+) ", printed, re.M)
    partitions = re.search(r"^Total partitions +: +([\d,]+) ", printed, re.M)
    assert errors and partitions and "END" in printed, printed[-4000:]
    assert errors[1] == "0" and "Exception" not in printed, printed[-4000:]
    assert int(partitions[1].replace(",", "")) > 0, printed[-4000:]


def run_predefined(state, workload):
    """Run one of the workloads, and check it."""
    for printed in run(state, [words.split() for words in PREDEFINED[workload].split(" + ")]):
        check(printed)
