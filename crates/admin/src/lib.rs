//! The operators' side of a node: the REST API, the metrics, and `nodetool`, which is a client of the API.
//!
//! What there is to know and to do comes through [`Operator`], which crate `node` implements; of ours this crate knows
//! `runtime`, `tasks` and `types` besides. [`serve`] runs on shard 0.
//!
//! Invariants
//! - Bytes from a connection never panic, and cost a bounded amount of memory ([`http`]).
//! - No request of an operator is on the path of a client's request.

pub mod access_keys;
pub mod control;
mod distribution;
#[doc(hidden)]
pub mod fuzz;
pub mod handoff;
pub mod http;
pub mod nodetool;
pub mod operations;
pub mod operator;
pub mod prometheus;
mod rest;

use std::rc::Rc;

use runtime::net::TcpListener;

pub use access_keys::AccessKeys;
pub use control::Control;
pub use distribution::Distribution;
pub use handoff::Handoff;
pub use operations::Operations;
pub use operator::Operator;

/// Answers the REST API. To be spawned; ends never.
pub async fn serve_api(listener: TcpListener, operator: Rc<dyn Operator>) {
    let service: http::Service = Rc::new(move |request| Box::pin(rest::answer(operator.clone(), request)));
    http::serve(listener, service).await;
}

/// Answers Prometheus, with the metrics of each table if `tells_tables`. Spawn this; it never returns.
pub async fn serve_metrics(listener: TcpListener, operator: Rc<dyn Operator>, tells_tables: bool) {
    let service: http::Service = Rc::new(move |request| {
        let operator = operator.clone();
        Box::pin(async move {
            if request.path != "/metrics" {
                return http::Response::refusal(404, "Not found: metrics are at /metrics");
            }
            let mut metrics = operator.metrics().await;
            if tells_tables {
                metrics.extend(prometheus::of_tables(&operator.tables().await));
            }
            // Two thirds of a scrape are the text, which requests of the shard need not wait for.
            let body = runtime::offload(move || prometheus::exposition(&metrics).into_bytes()).await;
            http::Response {
                status: 200,
                content_type: prometheus::CONTENT_TYPE,
                body,
            }
        })
    });
    http::serve(listener, service).await;
}
