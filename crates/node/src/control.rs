//! The operator's line to a running node: `ceto nodetool`.
//!
//! Shard 0 listens on a loopback port that the file `control` in the workdir names, beside a secret that only who can read
//! the workdir knows. A request is one line, `SECRET word word …`; the answer is `ok` or `error` on the first line and
//! text behind it until the connection ends.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use query::Engine;
use runtime::ShardId;
use runtime::net::{ListenOptions, TcpListener, TcpStream};

use crate::start::Shared;

/// Longest request line, in bytes.
const LINE_BYTES_MAX: usize = 4096;
/// How long a client may take to say its line.
const LINE_WAIT_MAX: Duration = Duration::from_secs(5);

/// Begins to listen.
pub(crate) async fn listen(shared: &Arc<Shared>) -> Result<(), String> {
    let at = |e: std::io::Error| format!("control port: {e}");
    let loopback = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = TcpListener::bind(loopback, ListenOptions::default()).map_err(at)?;
    let port = listener.local_addr().map_err(at)?.port();
    let path = shared.config.workdir.join("control");
    runtime::fs::write(&path, format!("{port} {}\n", shared.secret).as_bytes())
        .map_err(|e| format!("{}: {e}", path.display()))?;
    let shared = shared.clone();
    drop(runtime::spawn(async move {
        loop {
            match listener.accept().await {
                Ok(stream) => drop(runtime::spawn(serve(shared.clone(), stream))),
                Err(e) => {
                    log::warn!("control port: {e}");
                    runtime::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }));
    Ok(())
}

async fn read_line(stream: &mut TcpStream) -> Option<String> {
    let mut line = Vec::with_capacity(LINE_BYTES_MAX);
    while !line.contains(&b'\n') {
        if line.len() == LINE_BYTES_MAX {
            return None;
        }
        let (result, filled) = stream.read(line).await;
        line = filled;
        if !matches!(result, Ok(n) if n > 0) {
            return None;
        }
    }
    String::from_utf8(line).ok()
}

async fn serve(shared: Arc<Shared>, mut stream: TcpStream) {
    let Ok(Some(line)) = runtime::timeout(LINE_WAIT_MAX, read_line(&mut stream)).await else {
        return;
    };
    let mut words = line.split_whitespace();
    let answer = if words.next() == Some(&shared.secret) {
        let words: Vec<&str> = words.collect();
        execute(&shared, &words).await
    } else {
        Err("wrong secret".to_owned())
    };
    let text = match answer {
        Ok(text) => format!("ok\n{text}"),
        Err(text) => format!("error\n{text}"),
    };
    let _ = stream.write_all(text.into_bytes()).await;
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

/// Runs `f` on every shard and joins the answers.
async fn on_all_shards<T: Send + 'static>(
    shards: u32,
    f: impl AsyncFn(std::rc::Rc<Engine>) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let mut out = Vec::new();
    for shard in 0..shards {
        let f = f.clone();
        out.push(runtime::submit_async_to(ShardId(shard), move || async move { f(Engine::local()).await }).await);
    }
    out
}

async fn execute(shared: &Shared, words: &[&str]) -> Result<String, String> {
    let shards = shared.config.smp;
    match words {
        ["flush"] => {
            let results = on_all_shards(shards, async |e: std::rc::Rc<Engine>| e.shard.flush_all().await).await;
            results.into_iter().collect::<Result<Vec<()>, String>>()?;
            Ok(String::new())
        }
        ["compact"] => {
            let results = on_all_shards(shards, async |e: std::rc::Rc<Engine>| e.shard.compact_all().await).await;
            results.into_iter().collect::<Result<Vec<()>, String>>()?;
            Ok(String::new())
        }
        ["info"] => {
            let memory = on_all_shards(shards, async |e: std::rc::Rc<Engine>| {
                let hints = e.coordinator.hints().map(|hints| hints.metrics());
                (e.shard.memory(), e.shard.log.bytes(), hints.unwrap_or_default())
            })
            .await;
            let mut text = format!("ID: {}\nShards: {shards}\n", shared.host_id);
            for (i, (m, log, hints)) in memory.iter().enumerate() {
                text.push_str(&format!(
                    "Shard {i}: memtables {} of {} bytes, commitlog {log} bytes\n",
                    m.dirty, m.dirty_max
                ));
                text.push_str(&format!(
                    "Shard {i}: hints {} written, {} replayed, {} dropped, {} expired, {} bytes waiting\n",
                    hints.written, hints.replayed, hints.dropped, hints.expired, hints.waiting_bytes
                ));
            }
            Ok(text)
        }
        ["setcompactionthroughput", mb] => {
            let mb: u64 = mb
                .parse()
                .map_err(|_| format!("expected megabytes per second (0 is no limit), got '{mb}'"))?;
            shared.compaction.set_bytes_per_second(mb << 20);
            Ok(String::new())
        }
        ["getcompactionthroughput"] => Ok(format!(
            "Current compaction throughput: {} MB/s\n",
            shared.compaction.bytes_per_second() >> 20
        )),
        ["version"] => {
            let info = shared
                .node
                .info
                .lock()
                .expect("nobody panics while holding the node's identity");
            Ok(format!("ReleaseVersion: {}\n", info.release_version))
        }
        other => Err(format!(
            "unknown command '{}'; known are: flush, compact, info, version, setcompactionthroughput, getcompactionthroughput",
            other.join(" ")
        )),
    }
}

/// Sends a request to the node of a workdir. Blocks.
pub fn request(workdir: &Path, words: &[String]) -> Result<String, String> {
    let path = workdir.join("control");
    let text = runtime::fs::read(&path).map_err(|e| format!("no node runs on {} ({e})", workdir.display()))?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let (port, secret) = text
        .trim()
        .split_once(' ')
        .ok_or_else(|| format!("{}: expected a port and a secret", path.display()))?;
    let port: u16 = port
        .parse()
        .map_err(|_| format!("{}: expected a port", path.display()))?;
    let line = format!("{secret} {}\n", words.join(" "));
    let answer: Arc<Mutex<Result<String, String>>> = Arc::new(Mutex::new(Err("the node did not answer".to_owned())));
    let result = answer.clone();
    runtime::run(runtime::Options::default(), move |_| {
        let (line, result) = (line.clone(), result.clone());
        Box::pin(async move {
            let asked = ask(port, line).await;
            *result.lock().expect("nobody panics while holding the answer") = asked;
        })
    })
    .map_err(|e| e.to_string())?;
    let answer = answer.lock().expect("nobody panics while holding the answer").clone()?;
    match answer.split_once('\n') {
        Some(("ok", text)) => Ok(text.to_owned()),
        Some((_, text)) => Err(text.to_owned()),
        None => Err("the node closed the connection".to_owned()),
    }
}

/// Sends one line and reads the answer to its end.
async fn ask(port: u16, line: String) -> Result<String, String> {
    let mut stream = TcpStream::connect(std::net::SocketAddr::from(([127, 0, 0, 1], port)))
        .await
        .map_err(|e| format!("the node does not answer on its control port: {e}"))?;
    stream.write_all(line.into_bytes()).await.0.map_err(|e| e.to_string())?;
    let mut answer = Vec::new();
    loop {
        answer.reserve(4096);
        let (result, filled) = stream.read(answer).await;
        answer = filled;
        if !matches!(result, Ok(n) if n > 0) {
            return Ok(String::from_utf8_lossy(&answer).into_owned());
        }
    }
}
