//! Imports into a service that the test plays: it keeps items in a map, and fails where the test says.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use runtime::net::{ListenOptions, TcpListener, TcpStream};
use serde_json::{Value, json};

use crate::import::import;
use crate::{Options, Summary};

/// Runs a test on a simulated machine, with its address.
pub(crate) fn simulate(test: impl AsyncFn(SocketAddr) + 'static) {
    let mut simulation = runtime::sim::Simulation::new(1);
    let node = simulation.add_node(1);
    let address = SocketAddr::new(simulation.address(node), 80);
    let test = Rc::new(test);
    simulation.start(node, move |_| {
        let test = test.clone();
        Box::pin(async move { test(address).await })
    });
    assert!(simulation.run_until_ended(node, Duration::from_secs(3600)), "it ends");
}

/// What the service does with a batch instead of writing it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// Writes the first item and leaves the others unprocessed.
    Unprocessed,
    /// Answers with status 500.
    Fails,
    /// Writes everything and closes the connection without an answer.
    LosesAnswer,
}

#[derive(Default)]
struct Service {
    items: BTreeMap<String, Value>,
    /// One for each batch, until there are no more.
    faults: VecDeque<Fault>,
    has_table: bool,
    batches: usize,
}

impl Service {
    fn apply(&mut self, request: &Value) {
        let put = request["PutRequest"].get("Item");
        let item = put.unwrap_or(&request["DeleteRequest"]["Key"]);
        let key = item["id"]["S"].as_str().expect("an item has its key").to_owned();
        match put {
            Some(item) => drop(self.items.insert(key, item.clone())),
            None => drop(self.items.remove(&key)),
        }
    }

    /// Status and body; None closes the connection.
    fn answer(&mut self, operation: &str, body: &Value) -> Option<(u16, Value)> {
        let described = json!({ "Table": {
            "TableStatus": "ACTIVE",
            "AttributeDefinitions": [{ "AttributeName": "id", "AttributeType": "S" }],
            "KeySchema": [{ "AttributeName": "id", "KeyType": "HASH" }],
        }});
        match operation {
            "CreateTable" => self.has_table = true,
            "DescribeTable" if !self.has_table => {
                let missing = "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException";
                return Some((400, json!({ "__type": missing, "message": "none" })));
            }
            "DescribeTable" => return Some((200, described)),
            _ => return self.write(body),
        }
        Some((200, json!({})))
    }

    fn write(&mut self, body: &Value) -> Option<(u16, Value)> {
        let requests = body["RequestItems"]["t"]
            .as_array()
            .expect("it writes the table t")
            .clone();
        assert!(requests.len() <= 25, "a batch has at most 25 items");
        self.batches += 1;
        if requests.iter().any(|request| request.to_string().contains("poison")) {
            return Some((
                400,
                json!({ "__type": "x#ValidationException", "message": "poison is refused" }),
            ));
        }
        let written = match self.faults.pop_front() {
            Some(Fault::Fails) => {
                return Some((
                    500,
                    json!({ "__type": "x#InternalServerError", "message": "try again" }),
                ));
            }
            Some(Fault::Unprocessed) => 1,
            Some(Fault::LosesAnswer) => {
                requests.iter().for_each(|request| self.apply(request));
                return None;
            }
            None => requests.len(),
        };
        requests[..written].iter().for_each(|request| self.apply(request));
        Some((200, json!({ "UnprocessedItems": { "t": requests[written..] } })))
    }
}

async fn serve(listener: TcpListener, service: Rc<RefCell<Service>>) {
    while let Ok(stream) = listener.accept().await {
        drop(runtime::spawn(serve_one(stream, service.clone())));
    }
}

async fn serve_one(mut stream: TcpStream, service: Rc<RefCell<Service>>) {
    let mut input = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&input).into_owned();
        let length = |head: &str| {
            head.split("Content-Length: ")
                .nth(1)?
                .split("\r\n")
                .next()?
                .parse()
                .ok()
        };
        let whole = text.split_once("\r\n\r\n");
        let whole = whole.filter(|(head, body)| length(head) == Some(body.len()));
        if let Some((head, body)) = whole {
            let operation = head
                .split("DynamoDB_20120810.")
                .nth(1)
                .and_then(|rest| rest.split("\r\n").next());
            let body = serde_json::from_str(body).expect("a body is JSON");
            let answer = service.borrow_mut().answer(operation.expect("a target"), &body);
            let Some((status, body)) = answer else {
                return;
            };
            let body = body.to_string();
            let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            stream
                .write_all(answer.into_bytes())
                .await
                .0
                .expect("the client listens");
            input.clear();
        }
        input.reserve(1 << 16);
        let (read, filled) = stream.read(input).await;
        input = filled;
        if read.unwrap_or(0) == 0 {
            return;
        }
    }
}

/// Writes an export with these files, each of these lines; a full one unless there is a type.
fn write_export(directory: &str, kind: Option<&str>, files: &[&[String]]) {
    let data = Path::new(directory).join("data");
    runtime::fs::create_dir_all(&data).expect("the disk has space");
    let (mut manifest, mut total) = (String::new(), 0);
    for (number, lines) in files.iter().enumerate() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        encoder.write_all(text.as_bytes()).expect("memory takes everything");
        let bytes = encoder.finish().expect("memory takes everything");
        let name = format!("{number}.json.gz");
        runtime::fs::write(data.join(&name), &bytes).expect("the disk has space");
        let md5 = STANDARD.encode(*md5::compute(&bytes));
        let key = format!("AWSDynamoDB/{directory}/data/{name}");
        let line = json!({ "itemCount": lines.len(), "md5Checksum": md5, "etag": "e", "dataFileS3Key": key });
        manifest += &format!("{line}\n");
        total += lines.len();
    }
    let mut summary = json!({ "exportArn": "arn:1", "itemCount": total, "outputFormat": "DYNAMODB_JSON" });
    if let Some(kind) = kind {
        summary["exportType"] = kind.into();
    }
    let directory = Path::new(directory);
    runtime::fs::write(directory.join("manifest-summary.json"), summary.to_string().as_bytes()).expect("space");
    runtime::fs::write(directory.join("manifest-files.json"), manifest.as_bytes()).expect("the disk has space");
}

fn item(id: usize, text: &str) -> String {
    json!({ "Item": { "id": { "S": format!("{id:04}") }, "text": { "S": text } } }).to_string()
}

fn change(id: usize, time_us: u64, text: Option<&str>) -> String {
    let id = format!("{id:04}");
    let mut line = json!({
        "Metadata": { "WriteTimestampMicros": { "N": time_us.to_string() } },
        "Keys": { "id": { "S": id } },
    });
    if let Some(text) = text {
        line["NewImage"] = json!({ "id": { "S": id }, "text": { "S": text } });
    }
    line.to_string()
}

fn options(address: SocketAddr) -> Options {
    Options {
        export: "export".into(),
        table: "t".to_owned(),
        endpoint: format!("http://{address}"),
        concurrency: 3,
        create_table: true,
        partition_key: Some("id:S".parse().expect("a name and a type")),
        sort_key: None,
        state: None,
        access_key: None,
        secret_key_file: None,
        region: "r".to_owned(),
    }
}

/// Starts the service, with a table and these faults.
fn start(address: SocketAddr, faults: &[Fault]) -> Rc<RefCell<Service>> {
    let service = Rc::new(RefCell::new(Service {
        faults: faults.iter().copied().collect(),
        has_table: true,
        ..Service::default()
    }));
    let listener = TcpListener::bind(address, ListenOptions::default()).expect("the port is free");
    drop(runtime::spawn(serve(listener, service.clone())));
    service
}

async fn imported(options: &Options) -> Result<Summary, String> {
    import(options, |_| {}).await
}

fn text_of(service: &Rc<RefCell<Service>>, id: usize) -> Option<String> {
    let service = service.borrow();
    let item = service.items.get(&format!("{id:04}"))?;
    Some(item["text"]["S"].as_str()?.to_owned())
}

#[test]
fn every_item_is_written_whatever_the_service_leaves_undone() {
    simulate(async |address| {
        let faults = [
            Fault::Unprocessed,
            Fault::Fails,
            Fault::LosesAnswer,
            Fault::Unprocessed,
            Fault::Unprocessed,
        ];
        let service = start(address, &faults);
        let lines: Vec<String> = (0..500).map(|id| item(id, "x")).collect();
        write_export("export", None, &[&lines[..300], &[], &lines[300..]]);
        let summary = imported(&options(address)).await.expect("the faults pass");
        assert_eq!((summary.puts, summary.deletions, summary.files), (500, 0, 3));
        assert_eq!(service.borrow().items.len(), 500);
        assert!(service.borrow().faults.is_empty(), "every fault was met");
    });
}

#[test]
fn the_table_is_created_or_its_flag_is_named() {
    simulate(async |address| {
        let service = start(address, &[]);
        service.borrow_mut().has_table = false;
        write_export("export", None, &[&[item(1, "x")]]);
        let without = Options {
            create_table: false,
            partition_key: None,
            ..options(address)
        };
        let refused = imported(&without).await.expect_err("there is no table");
        assert!(refused.contains("--create-table"), "{refused}");
        imported(&options(address)).await.expect("the table is created");
        let other = Options {
            partition_key: Some("id:N".parse().expect("a name and a type")),
            ..options(address)
        };
        let refused = imported(&other).await.expect_err("the table has another key");
        assert!(refused.contains("with another key"), "{refused}");
    });
}

#[test]
fn changes_of_one_item_are_applied_in_their_order() {
    simulate(async |address| {
        let service = start(address, &[Fault::Unprocessed, Fault::Fails]);
        let mut first: Vec<String> = (0..60).map(|id| change(id, 10, Some("old"))).collect();
        first.extend((0..60).map(|id| change(id, 20, (id % 2 == 0).then_some("new"))));
        // The file of a later line may have an older change.
        let second = [change(0, 15, None), change(1, 15, Some("old")), change(2, 30, None)];
        write_export("export", Some("INCREMENTAL_EXPORT"), &[&first, &second]);
        let summary = imported(&options(address)).await.expect("the faults pass");
        assert_eq!(summary.superseded, 2);
        assert_eq!(text_of(&service, 0).as_deref(), Some("new"));
        assert_eq!(text_of(&service, 1), None);
        assert_eq!(text_of(&service, 2), None);
        let expected = (0..60).filter(|id| id % 2 == 0 && *id != 2).count();
        assert_eq!(service.borrow().items.len(), expected);
        assert!(service.borrow().items.values().all(|item| item["text"]["S"] == "new"));
    });
}

#[test]
fn a_refused_item_is_named_by_its_line() {
    simulate(async |address| {
        start(address, &[]);
        let lines: Vec<String> = (0..40)
            .map(|id| item(id, if id == 33 { "poison" } else { "x" }))
            .collect();
        write_export("export", None, &[&lines]);
        let refused = imported(&options(address)).await.expect_err("an item is refused");
        assert_eq!(
            refused,
            "export/data/0.json.gz: line 34: ValidationException: poison is refused"
        );
    });
}

#[test]
fn nothing_of_a_damaged_file_is_written() {
    simulate(async |address| {
        let service = start(address, &[]);
        write_export("export", None, &[&[item(1, "x")], &[item(2, "x"), item(3, "x")]]);
        let path = Path::new("export/data/1.json.gz");
        let bytes = runtime::fs::read(path).expect("the file is there");
        runtime::fs::write(path, &bytes[..bytes.len() - 1]).expect("the disk has space");
        let refused = imported(&options(address)).await.expect_err("a file is damaged");
        assert!(refused.starts_with("export/data/1.json.gz: the MD5"), "{refused}");
        assert_eq!(service.borrow().items.len(), 1, "the file before it is written");
    });
}

#[test]
fn an_import_with_a_state_file_continues_after_the_last_whole_file() {
    simulate(async |address| {
        let service = start(address, &[]);
        let files = [vec![item(1, "x")], vec![item(2, "poison")], vec![item(3, "x")]];
        write_export("export", None, &[&files[0], &files[1], &files[2]]);
        let options = Options {
            state: Some("state".into()),
            ..options(address)
        };
        imported(&options).await.expect_err("an item is refused");
        // Applications have written since; the item of a file that is done is not put again.
        service.borrow_mut().items.clear();
        write_export("export", None, &[&files[0], &[item(2, "y")], &files[2]]);
        let summary = imported(&options).await.expect("nothing is refused any more");
        assert_eq!((summary.puts, summary.files, summary.files_skipped), (2, 2, 1));
        assert_eq!(text_of(&service, 1), None);
        assert_eq!(text_of(&service, 2).as_deref(), Some("y"));
    });
}

#[test]
fn a_service_that_is_away_for_long_is_named() {
    simulate(async |address| {
        let service = start(address, &[Fault::Fails; 1000]);
        write_export("export", None, &[&[item(1, "x")]]);
        let failed = imported(&options(address))
            .await
            .expect_err("the service does not recover");
        assert!(
            failed.contains("line 1: not written for 120 s: 500 InternalServerError: try again"),
            "{failed}"
        );
        assert!(service.borrow().batches < 100, "tries become rarer");
    });
}
