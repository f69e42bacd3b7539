//! Changes of options while the node runs: at SIGHUP it reads them again, and clients set some by statements on
//! `system.config`. It takes over what can change, and never ends for that.
//!
//! What clients set lasts until the node ends, or until a SIGHUP finds the option in the options file and not on the
//! command line.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use ::cluster::Cluster;
use config::{Changed, Config, SetOptions, changes_at_hangup};
use query::Engine;
use rpc::{Rpc, Tls};
use runtime::{Semaphore, ShardId};
use tasks::Class;

use crate::cluster::tls_files;
use crate::dynamodb;
use crate::follow::on_all_shards;
use crate::live_options::left_by_file;
use crate::shard_main::follower;
use crate::start::Shared;

/// How the names of the options of TLS between nodes begin.
const TLS_OPTIONS: &str = "server_encryption_options.";
/// And those of TLS with clients of the DynamoDB API.
const DYNAMODB_TLS_OPTIONS: &str = "alternator_encryption_options.";

/// Changes the options of the running node, one change after another. Lives on shard 0.
struct Changer {
    shared: Arc<Shared>,
    turn: Semaphore,
}

/// Takes over changed options at each SIGHUP, and what statements ask for. To be spawned on shard 0; ends never.
pub(crate) async fn at_hangups(shared: Arc<Shared>) {
    let changer = Rc::new(Changer {
        shared,
        turn: Semaphore::new(1),
    });
    runtime::set_local(changer.clone());
    let mut hangup = runtime::on_signal_hangup();
    loop {
        hangup.await;
        hangup = runtime::on_signal_hangup();
        changer.reread().await;
    }
}

/// Gives options of this node other values, all or none; called on any shard.
///
/// # Errors
/// In words for the client: when an option does not exist or does not change while the node runs, or a value does not
/// fit.
pub(crate) async fn set(changes: Vec<(String, Option<String>)>) -> Result<(), String> {
    let change = || async move {
        let changer = runtime::local::<Changer>();
        let changer = changer.ok_or_else(|| "the node is not far enough in its start".to_owned())?;
        changer.set(&changes).await
    };
    runtime::submit_async_to(ShardId(0), change).await
}

impl Changer {
    /// Reads the options again and takes over what can change.
    async fn reread(&self) {
        let _turn = self.turn.acquire(1).await;
        let shared = &self.shared;
        let asked = shared.clone();
        let former = shared.options.current();
        let before = former.set.clone();
        let reread = move || {
            let reread = asked.reread.get()?;
            Some(reread().and_then(|read| with_set(read, &before)))
        };
        match runtime::offload(reread).await {
            None => log::warn!("SIGHUP: this node has no options to read again"),
            Some(Err(e)) => log::error!("SIGHUP: cannot read the options; the node keeps those it has: {e}"),
            Some(Ok((config, set))) => {
                take_over(shared, &config, &|_| true).await;
                reread_certificates(shared, &config).await;
                log::info!("SIGHUP: {}", said(&former.config.settings, &config.settings));
                shared.replace_options(config, set);
            }
        }
    }

    /// Gives options other values, all or none.
    async fn set(&self, changes: &[(String, Option<String>)]) -> Result<(), String> {
        let _turn = self.turn.acquire(1).await;
        let shared = &self.shared;
        let former = shared.options.current();
        let Changed { set, config, names } = config::set(&former.config, &former.set, changes)?;
        if names.iter().any(|name| name.starts_with(TLS_OPTIONS)) {
            take_certificates(shared, &config).await?;
        }
        if names.iter().any(|name| name.starts_with(DYNAMODB_TLS_OPTIONS)) {
            take_dynamodb_certificate(shared, &config).await?;
        }
        take_over(shared, &config, &|name| names.contains(&name)).await;
        for name in names {
            let value = config.settings.get(name).cloned().flatten();
            log::info!(
                "a client set option {name}: it is {}",
                value.as_deref().unwrap_or("not set")
            );
        }
        shared.replace_options(config, set);
        Ok(())
    }
}

/// The options as they were read, with what clients have set before and the file does not say. Blocks.
fn with_set(read: Config, before: &SetOptions) -> Result<(Config, SetOptions), String> {
    let set = left_by_file(before, &read);
    let Some(given) = read.given.clone().filter(|_| !set.is_empty()) else {
        return Ok((read, set));
    };
    let config = given.config(&set).map_err(|error| error.to_string())?;
    let config = Config {
        given: Some(given),
        ..config
    };
    Ok((config, set))
}

/// Has the node obey the options of which `is_given` says so. The others may have other values than the configuration
/// says, by nodetool.
async fn take_over(shared: &Shared, config: &Config, is_given: &dyn Fn(&'static str) -> bool) {
    if is_given("default_log_level") {
        logging::configure(config.log_level);
    }
    if is_given("compaction_throughput") {
        let rate = config.compaction_throughput.unwrap_or(0);
        shared.tasks.set_bytes_per_second(Class::Compaction, rate);
    }
    if is_given("stream_throughput_outbound") {
        let rate = config.stream_throughput.unwrap_or(0);
        shared.tasks.set_bytes_per_second(Class::Streaming, rate);
    }
    follower().set_auto_snapshot(config.auto_snapshot);
    shared.disks.set_policy(config.disk_failure_policy);
    shared.disk_monitor.set_limits(config.disk_limits);
    sstable::set_large_thresholds(config.large, config.large_limits);
    if let Some(cluster) = runtime::local::<Cluster>() {
        cluster.set_balancing(config.balancing);
    }
    shared.front.slow_request.set(config.slow_request);
    let timeouts = config.timeouts;
    let page_limits = config.page_limits;
    let guardrails = Arc::new(config.guardrails.clone());
    let row_expiry_period = config.row_expiry_period;
    let dynamodb = dynamodb::settings(config);
    on_all_shards(async move |engine: Rc<Engine>| {
        engine.coordinator.context.set_timeouts(timeouts);
        engine.set_page_limits(page_limits);
        engine.set_guardrails(&guardrails);
        upkeep::row_expiry::set_period(row_expiry_period);
        if let Some(server) = runtime::local::<dynamodb_server::Server>() {
            server.set_settings(dynamodb.clone());
        }
    })
    .await;
}

/// Reads the certificates and keys of TLS with other nodes again, from the files that the options name now. If one of
/// them is bad, all stay as they are. Whether there is TLS at all changes at a start only.
async fn reread_certificates(shared: &Shared, config: &Config) {
    match take_certificates(shared, config).await {
        Ok(None) => {}
        Ok(Some(certificate)) => log::info!(
            "SIGHUP: new connections between nodes use the certificate in {}",
            certificate.display()
        ),
        Err(e) => log::error!("SIGHUP: cannot use the new certificate; the node keeps the one it has: {e}"),
    }
    if let Err(e) = take_dynamodb_certificate(shared, config).await {
        log::error!("SIGHUP: cannot use the new certificate of the DynamoDB API; the node keeps the one it has: {e}");
    }
}

/// Loads the certificate of the DynamoDB API and gives it to all shards, for new connections. Without a port with TLS
/// it does nothing.
async fn take_dynamodb_certificate(shared: &Shared, config: &Config) -> Result<(), String> {
    let has_port = shared.config.dynamodb.https_port.is_some();
    let Some(files) = config.dynamodb.tls.clone().filter(|_| has_port) else {
        return Ok(());
    };
    let tls = dynamodb::load(files).await?;
    let take = async move |_: Rc<Engine>| {
        if let Some(server) = runtime::local::<dynamodb_server::Server>() {
            server.set_tls(tls.clone());
        }
    };
    on_all_shards(take).await;
    Ok(())
}

/// Loads certificates and keys and gives them to all shards, for new connections with other nodes. The file of the
/// certificate; None where nodes have no TLS.
async fn take_certificates(shared: &Shared, config: &Config) -> Result<Option<PathBuf>, String> {
    let Some(files) = tls_files(config).filter(|_| shared.config.encryption.is_some()) else {
        return Ok(None);
    };
    let certificate = files.certificate.clone();
    let loaded = runtime::offload(move || Tls::load(&files)).await;
    let tls = loaded.map_err(|e| e.to_string())?;
    let take = async move |_: Rc<Engine>| {
        if let Some(rpc) = runtime::local::<Rpc>() {
            rpc.set_tls(tls.clone());
        }
    };
    on_all_shards(take).await;
    Ok(Some(certificate))
}

/// What became of the options that changed.
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
    if parts.is_empty() {
        "the options were read again; nothing has changed".to_owned()
    } else {
        parts.join("; ")
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
        assert_eq!(
            said(&former, &former),
            "the options were read again; nothing has changed"
        );
        let now = settings(&[("default_log_level", "debug"), ("num_tokens", "8")]);
        assert_eq!(
            said(&former, &now),
            "default_log_level is debug; num_tokens changed, which takes effect at the next start"
        );
    }
}
