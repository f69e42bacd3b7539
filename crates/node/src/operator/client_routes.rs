//! Client routes, for operators.

use std::rc::Rc;

use admin::operator::{ClientRoute, ClientRouteKey, NotChanged};
use cluster::{ChangeError, ClientRoutes, ClientRoutesChange, Cluster, Command};

fn key(key: ClientRouteKey) -> cluster::ClientRouteKey {
    let ClientRouteKey { connection_id, host_id } = key;
    cluster::ClientRouteKey { connection_id, host_id }
}

pub(super) fn shown(routes: &ClientRoutes) -> Vec<ClientRoute> {
    let shown = routes.iter().map(|(key, route)| ClientRoute {
        key: ClientRouteKey {
            connection_id: key.connection_id.clone(),
            host_id: key.host_id,
        },
        address: route.address.clone(),
        port: route.port,
        tls_port: route.tls_port,
        alternator_port: route.alternator_port,
        alternator_https_port: route.alternator_https_port,
    });
    shown.collect()
}

pub(super) fn put(routes: Vec<ClientRoute>) -> ClientRoutesChange {
    let put = routes.into_iter().map(|route| {
        let known = cluster::ClientRoute {
            address: route.address,
            port: route.port,
            tls_port: route.tls_port,
            alternator_port: route.alternator_port,
            alternator_https_port: route.alternator_https_port,
        };
        (key(route.key), known)
    });
    ClientRoutesChange {
        put: put.collect(),
        ..ClientRoutesChange::default()
    }
}

pub(super) fn removed(routes: Vec<ClientRouteKey>) -> ClientRoutesChange {
    ClientRoutesChange {
        removed: routes.into_iter().map(key).collect(),
        ..ClientRoutesChange::default()
    }
}

/// Has the cluster agree on a change.
pub(super) async fn change(
    cluster: Result<&Rc<Cluster>, String>,
    change: ClientRoutesChange,
) -> Result<(), NotChanged> {
    let cluster = cluster.map_err(NotChanged::Failed)?;
    match cluster.propose(Command::ClientRoutes(change)).await {
        Ok(_) => Ok(()),
        Err(ChangeError::Rejected(why)) => Err(NotChanged::Refused(why)),
        Err(error) => Err(NotChanged::Failed(error.to_string())),
    }
}
