//! The nodes that the Rust driver knows and is connected to: `members HOST PORT`. It prints them whenever it reads a line.

use std::error::Error;

use scylla::client::session_builder::SessionBuilder;

// The driver works on another thread, while this one waits for a line.
#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, host, port] = arguments.as_slice() else {
        return Err("members HOST PORT".into());
    };
    let session = SessionBuilder::new().known_node(format!("{host}:{port}")).build().await?;
    for line in std::io::stdin().lines() {
        line?;
        let state = session.get_cluster_state();
        let connected = state.get_nodes_info().iter().filter(|node| node.is_connected());
        let shown: Vec<String> = connected.map(|node| format!("{}={}", node.host_id, node.address.ip())).collect();
        println!("known {}", shown.join(" "));
    }
    Ok(())
}
