//! `ceto perf items`: what an operation of the DynamoDB API costs inside the server, without the network and HTTP.
//!
//! A whole node with one shard starts in a temporary workdir, without sockets. An operation is the JSON of a request,
//! from which the shard makes the JSON of its answer; the request is another one each time. Requests are made before
//! anything is counted, but for their number. Items have a key and nine attributes: five texts of 34 bytes, a number, a
//! boolean, a list of three numbers and a map of two texts.

use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use config::{Machine, ServerArgs};
use dynamodb_engine::{Service, Settings};
use query::Engine;
use runtime::InstructionCounter;
use serde_json::json;
use stdx::random::SplitMix64;

use crate::allocations::allocation_count;
use crate::temporary::Directory;

/// Options of `ceto perf items`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// What is done to items.
    #[arg(value_enum)]
    pub operation: Operation,
    /// Items in the table.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub items: u64,
    /// Operations to measure.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub operations: u64,
    /// Memory of the whole node.
    #[arg(short = 'm', long, default_value = "1G")]
    pub memory: String,
    /// Where to make the node's directory, which is removed at the end [default: where temporary files are].
    #[arg(long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,
    /// A file to write the result to, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json_result: Option<PathBuf>,
}

/// What is done to an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Operation {
    /// GetItem.
    Get,
    /// PutItem.
    Put,
    /// UpdateItem that sets one attribute.
    Update,
    /// UpdateItem that adds to a number on a condition, and returns the item.
    Modify,
    /// DeleteItem of an item that is there, and PutItem again: two requests.
    Delete,
    /// TransactWriteItems of two items in two partitions.
    Transact,
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Operations.
    pub operations: u64,
    /// How long they took, seconds.
    pub seconds: f64,
    /// None when the allocator does not count.
    pub allocations: Option<u64>,
    /// In user mode; None when the processor does not count.
    pub instructions: Option<u64>,
}

impl Report {
    fn of_each(&self, count: Option<u64>) -> Option<f64> {
        count.map(|count| count as f64 / self.operations.max(1) as f64)
    }

    fn json(&self) -> String {
        let per_second = self.operations as f64 / self.seconds.max(f64::MIN_POSITIVE);
        let report = json!({
            "operations": self.operations,
            "operations_per_second": per_second,
            "allocations_per_operation": self.of_each(self.allocations),
            "instructions_per_operation": self.of_each(self.instructions),
        });
        report.to_string()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_second = self.operations as f64 / self.seconds.max(f64::MIN_POSITIVE);
        writeln!(f, "operations/s:               {per_second:>12.0}")?;
        for (name, count) in [("allocations", self.allocations), ("instructions", self.instructions)] {
            match self.of_each(count) {
                Some(each) => writeln!(f, "{:27} {each:>12.1}", format!("{name}/operation:"))?,
                None => writeln!(f, "{:27} {:>12}", format!("{name}/operation:"), "not counted")?,
            }
        }
        Ok(())
    }
}

/// Starts a node, measures it, and stops it.
///
/// # Errors
/// When the node does not start with these options, an operation fails, or the result cannot be written.
pub fn run(options: &Options) -> Result<Report, String> {
    let directory = Directory::create(options.workdir.as_deref())?;
    let args = ServerArgs::default()
        .with("workdir", directory.path().to_string_lossy())
        .with("smp", "1")
        .with("memory", &options.memory)
        .with("overprovisioned", "true");
    let config = config::load(&args, &Machine::detect()).map_err(|error| error.to_string())?;
    let result = Arc::new(Mutex::new(Err("the node ended early".to_owned())));
    let (on_shard, asked) = (result.clone(), options.clone());
    let main = move |engine: Rc<Engine>| -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
        let (result, options) = (on_shard.clone(), asked.clone());
        Box::pin(async move {
            let measured = measure(engine, &options).await;
            *result.lock().unwrap_or_else(PoisonError::into_inner) = measured;
        })
    };
    node::embed(config, Arc::new(main))?;
    let report = result.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
    if let Some(path) = &options.json_result {
        runtime::fs::write(path, report.json().as_bytes()).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(report)
}

async fn measure(engine: Rc<Engine>, options: &Options) -> Result<Report, String> {
    let service = Service::new(engine, Settings::default());
    runtime::set_local(service.clone());
    let table = json!({
        "TableName": "items",
        "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
    });
    ask(&service, "CreateTable", table.to_string().as_bytes()).await?;
    for key in 0..options.items {
        ask(&service, "PutItem", put(key).numbered(0)).await?;
    }
    let mut requests: Vec<Vec<Template>> = (0..options.items)
        .map(|key| requests(options.operation, key, options.items))
        .collect();
    let mut random = SplitMix64::new(1);
    let allocations_before = allocation_count();
    let instructions = InstructionCounter::start();
    let start = runtime::now();
    for number in 1..=options.operations {
        let key = usize::try_from(random.scaled(options.items)).map_err(|error| error.to_string())?;
        for template in &mut requests[key] {
            let operation = template.operation;
            ask(&service, operation, template.numbered(number)).await?;
        }
    }
    Ok(Report {
        operations: options.operations,
        seconds: start.elapsed().as_secs_f64(),
        allocations: allocation_count()
            .zip(allocations_before)
            .map(|(after, before)| after - before),
        instructions: instructions.and_then(|counter| counter.read()),
    })
}

async fn ask(service: &Rc<Service>, operation: &str, request: &[u8]) -> Result<(), String> {
    let answered = service.execute(operation, request).await;
    answered
        .map(drop)
        .map_err(|error| format!("{operation} {}: {error}", String::from_utf8_lossy(request)))
}

/// A request but for its number.
struct Template {
    operation: &'static str,
    body: Vec<u8>,
    /// Where the number is.
    places: Vec<usize>,
}

/// In the place of the number of a request, as many digits.
const NUMBER: &str = "##########";

impl Template {
    fn new(operation: &'static str, body: String) -> Self {
        Self {
            operation,
            places: body.match_indices(NUMBER).map(|(at, _)| at).collect(),
            body: body.into_bytes(),
        }
    }

    /// The request of a number.
    fn numbered(&mut self, number: u64) -> &[u8] {
        let (mut digits, mut rest) = ([b'0'; NUMBER.len()], number);
        for digit in digits.iter_mut().rev() {
            *digit += u8::try_from(rest % 10).unwrap_or_default();
            rest /= 10;
        }
        // The first one, so that it is the same as a number of JSON.
        digits[0] = b'1';
        for at in &self.places {
            self.body[*at..*at + NUMBER.len()].copy_from_slice(&digits);
        }
        &self.body
    }
}

fn put(key: u64) -> Template {
    let text = |n: u64| format!("{:034}", key.wrapping_mul(31).wrapping_add(n));
    let body = format!(
        r#"{{"TableName":"items","Item":{{"p":{{"S":"item {key}"}},"a":{{"S":"{}"}},"b":{{"S":"{}"}},"c":{{"S":"{}"}},"d":{{"S":"{}"}},"e":{{"S":"{NUMBER:0>34}"}},"n":{{"N":"{NUMBER}"}},"is":{{"BOOL":true}},"l":{{"L":[{{"N":"1"}},{{"N":"2"}},{{"N":"3"}}]}},"m":{{"M":{{"x":{{"S":"one"}},"y":{{"S":"two"}}}}}}}}}}"#,
        text(1),
        text(2),
        text(3),
        text(4),
    );
    Template::new("PutItem", body)
}

/// The requests of an operation on a key.
fn requests(operation: Operation, key: u64, items: u64) -> Vec<Template> {
    let of_key = |key: u64| format!(r#""TableName":"items","Key":{{"p":{{"S":"item {key}"}}}}"#);
    let set = |key: u64| {
        format!(
            r#"{},"UpdateExpression":"SET a = :a","ExpressionAttributeValues":{{":a":{{"S":"{NUMBER:0>34}"}}}}"#,
            of_key(key)
        )
    };
    let one = |operation, body| vec![Template::new(operation, body)];
    match operation {
        Operation::Get => one("GetItem", format!("{{{}}}", of_key(key))),
        Operation::Put => vec![put(key)],
        Operation::Update => one("UpdateItem", format!("{{{}}}", set(key))),
        Operation::Modify => one(
            "UpdateItem",
            format!(
                r#"{{{},"UpdateExpression":"SET n = n + :one","ConditionExpression":"n >= :zero","ExpressionAttributeValues":{{":one":{{"N":"1"}},":zero":{{"N":"0"}}}},"ReturnValues":"ALL_NEW"}}"#,
                of_key(key)
            ),
        ),
        Operation::Delete => vec![Template::new("DeleteItem", format!("{{{}}}", of_key(key))), put(key)],
        Operation::Transact => {
            let other = (key + 1) % items.max(2);
            one(
                "TransactWriteItems",
                format!(
                    r#"{{"TransactItems":[{{"Update":{{{}}}}},{{"Update":{{{}}}}}]}}"#,
                    set(key),
                    set(other)
                ),
            )
        }
    }
}
