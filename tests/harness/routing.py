"""Where the requests of drivers came to, by the nodes' own count."""

PLACES = ("owner", "owning_node", "elsewhere")


def routed(cluster):
    """By where they came to, how many requests on one partition all nodes counted so far."""
    counts = dict.fromkeys(PLACES, 0.0)
    for node in cluster:
        for name, value in node.metrics().items():
            if name.startswith("ceto_routed_requests_total{"):
                counts[next(place for place in PLACES if f'kind="{place}"' in name)] += value
    return counts


def at_once(cluster):
    """How many requests on one partition all nodes have answered in the call that brought them."""
    found = (node.metrics().items() for node in cluster)
    return sum(value for metrics in found for name, value in metrics if name.startswith("ceto_requests_at_once_total"))
