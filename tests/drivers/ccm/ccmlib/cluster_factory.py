"""A cluster that was made by an earlier process."""

from ccmlib.cluster import Cluster


class ClusterFactory:
    @staticmethod
    def load(path, name):
        return Cluster.load(path, name)
