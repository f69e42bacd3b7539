"""DataStax Enterprise, which ceto does not stand in for."""

from ccmlib.cluster import Cluster


class DseCluster(Cluster):
    def __init__(self, *arguments, **settings):
        raise NotImplementedError("no DataStax Enterprise here")
