//! SIGHUP: a node reads its options again and takes over what can change while it runs. It never ends for that.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use ::cluster::Cluster;
use query::Engine;
use rpc::{Rpc, Tls};
use tasks::Class;

use crate::cluster::tls_files;
use crate::config::{Config, changes_at_hangup};
use crate::follow::on_all_shards;
use crate::shard_main::follower;
use crate::start::Shared;

/// Takes over changed options at each SIGHUP. To be spawned on shard 0; ends never.
pub(crate) async fn at_hangups(shared: Arc<Shared>) {
    let mut former = shared.config.settings.clone();
    let mut hangup = runtime::on_signal_hangup();
    loop {
        hangup.await;
        hangup = runtime::on_signal_hangup();
        let asked = shared.clone();
        let reread = move || asked.reread.get().map(|reread| reread());
        match runtime::offload(reread).await {
            None => log::warn!("SIGHUP: this node has no options to read again"),
            Some(Err(e)) => log::error!("SIGHUP: cannot read the options; the node keeps those it has: {e}"),
            Some(Ok(config)) => {
                take_over(&shared, &config).await;
                log::info!("SIGHUP: {}", said(&former, &config.settings));
                former = config.settings;
            }
        }
    }
}

async fn take_over(shared: &Shared, config: &Config) {
    logging::configure(config.log_level);
    let rate = config.compaction_throughput.unwrap_or(0);
    shared.tasks.set_bytes_per_second(Class::Compaction, rate);
    let rate = config.stream_throughput.unwrap_or(0);
    shared.tasks.set_bytes_per_second(Class::Streaming, rate);
    follower().set_auto_snapshot(config.auto_snapshot);
    shared.disks.set_policy(config.disk_failure_policy);
    shared.disk_monitor.set_limits(config.disk_limits);
    if let Some(cluster) = runtime::local::<Cluster>() {
        cluster.set_balancing(config.balancing);
    }
    shared.node.slow_request.set(config.slow_request);
    let timeouts = config.timeouts;
    let batch_bytes_max = config.batch_size_fail_threshold;
    let tombstone_limits = config.tombstone_limits;
    on_all_shards(async move |engine: Rc<Engine>| {
        engine.coordinator.set_timeouts(timeouts);
        engine.set_batch_bytes_max(batch_bytes_max);
        engine.set_tombstone_limits(tombstone_limits);
    })
    .await;
    reread_certificates(shared, config).await;
}

/// Reads the certificates and keys of TLS with other nodes again, from the files that the options name now. If one of them is bad, all stay as
/// they are. Whether there is TLS at all changes at a start only.
async fn reread_certificates(shared: &Shared, config: &Config) {
    let Some(files) = tls_files(config).filter(|_| shared.config.encryption.is_some()) else {
        return;
    };
    let certificate = files.certificate.clone();
    match runtime::offload(move || Tls::load(&files)).await {
        Ok(tls) => {
            let take = async move |_: Rc<Engine>| {
                if let Some(rpc) = runtime::local::<Rpc>() {
                    rpc.set_tls(tls.clone());
                }
            };
            on_all_shards(take).await;
            log::info!(
                "SIGHUP: new connections between nodes use the certificate in {}",
                certificate.display()
            );
        }
        Err(e) => {
            log::error!("SIGHUP: cannot use the new certificate; the node keeps the one it has: {e}")
        }
    }
}

/// What became of the options that are others than before.
fn said(former: &BTreeMap<String, Option<String>>, now: &BTreeMap<String, Option<String>>) -> String {
    let mut changed = now.iter().filter(|(name, value)| former.get(*name) != Some(value));
    let (live, late): (Vec<_>, Vec<_>) = changed.by_ref().partition(|(name, _)| changes_at_hangup(name));
    let text =
        |(name, value): &(&String, &Option<String>)| format!("{name} is {}", value.as_deref().unwrap_or("not set"));
    let mut parts: Vec<String> = live.iter().map(text).collect();
    if !late.is_empty() {
        let names: Vec<&str> = late.iter().map(|(name, _)| name.as_str()).collect();
        parts.push(format!(
            "{} changed, which takes effect at the next start",
            names.join(", ")
        ));
    }
    match parts.is_empty() {
        true => "the options were read again; none is another".to_owned(),
        false => parts.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_told_apart_from_what_waits_for_a_restart() {
        let settings = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned())));
            pairs.collect::<BTreeMap<_, _>>()
        };
        let former = settings(&[("default_log_level", "info"), ("num_tokens", "16")]);
        assert_eq!(said(&former, &former), "the options were read again; none is another");
        let now = settings(&[("default_log_level", "debug"), ("num_tokens", "8")]);
        assert_eq!(
            said(&former, &now),
            "default_log_level is debug; num_tokens changed, which takes effect at the next start"
        );
    }
}
