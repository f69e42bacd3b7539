//! The load generators by themselves, without the rest of ceto.
use clap::Parser;

#[derive(Parser)]
enum Command {
    /// Load on a CQL server.
    Cql(perf::cql_load::Options),
    /// Load on a Redis server.
    Redis(perf::redis_load::Options),
}

fn main() {
    let result = match Command::parse() {
        Command::Cql(options) => perf::cql_load::run(options),
        Command::Redis(options) => perf::redis_load::run(options),
    };
    match result {
        Ok(report) => print!("{report}"),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}
