"""A stand-in for CCM, with which published test suites of drivers start their clusters: it starts nodes of ceto.

It has the part of CCM's modules that the suites use. The command `ccm` beside this package has the same for suites that are not
written in Python. What nodes are told is written into their `ceto.yaml` as the suite gave it, so that ceto itself refuses what it
has not; Cassandra's version, JVM options and ports of JMX mean nothing here.

Nodes outlive the process that starts them, as CCM's do. A suite runs in namespaces of its own (`harness/suites.py`), so that it has
the ports it expects, and nothing that it started outlives it.
"""
