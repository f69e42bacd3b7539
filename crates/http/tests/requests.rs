//! Requests as clients write them, cut out of the bytes of a connection (`requests.txt`); the same bytes one by one.

use http::{Limits, Progress, RequestReader, Target};
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    head_bytes_max: 16 << 10,
    body_bytes_max: 1 << 20,
    takes_chunks: true,
};

/// The bytes of a text in which line ends are written `\r\n`, and `N*text*` repeats a text.
fn bytes_of(text: &str) -> Vec<u8> {
    let mut out = String::new();
    for line in text.lines() {
        match line.split_once(" times ") {
            Some((count, repeated)) => out += &repeated.repeat(count.parse().expect("a number of times")),
            None => out += line,
        }
    }
    let line_ends = out.replace("\\r", "\r").replace("\\n", "\n");
    line_ends.replace("\\0", "\0").into_bytes()
}

/// What a reader makes of bytes that arrive `step` at a time.
fn requests(bytes: &[u8], limits: Limits, step: usize) -> String {
    let mut reader = RequestReader::new(limits);
    let (mut out, mut from, mut arrived) = (String::new(), 0, 0);
    loop {
        match reader.next(&bytes[from..arrived]) {
            Ok(Progress::Whole(request)) => {
                let (head, body) = (&request.head, request.body.to_vec());
                let target = match Target::decode(head.target) {
                    Ok(target) => format!("{} {:?}", target.path, target.query),
                    Err(e) => e.to_string(),
                };
                let then = if head.keep_alive { "stays" } else { "ends" };
                let body = String::from_utf8_lossy(&body);
                out += &format!("{} {target} {then} {body:.40}\n", head.method);
                from += request.bytes;
            }
            Ok(Progress::Partial(_)) if arrived < bytes.len() => arrived = (arrived + step).min(bytes.len()),
            Ok(Progress::Partial(partial)) => {
                let expects = if partial.expects_continue { ", expects 100" } else { "" };
                if from < arrived {
                    out += &format!("not whole: {} of {}{expects}\n", arrived - from, partial.wanted_bytes);
                }
                return out.trim_end().to_owned();
            }
            Err(error) => {
                out += &error.to_string();
                return out;
            }
        }
    }
}

#[test]
fn requests_are_read_as_clients_write_them() {
    testkit::run(testkit::path!("tests/requests.txt"), |case| {
        let limits = Limits {
            takes_chunks: case.command() != "no_chunks",
            ..LIMITS
        };
        let bytes = bytes_of(case.input());
        let at_once = requests(&bytes, limits, usize::MAX / 2);
        if bytes.len() < 4096 {
            assert_eq!(requests(&bytes, limits, 1), at_once, "byte by byte: {}", case.input());
        }
        at_once
    });
}

#[test]
fn a_long_body_in_small_chunks_is_read_in_linear_time() {
    let chunk = "200\r\n".to_owned() + &"x".repeat(512) + "\r\n";
    let text = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned() + &chunk.repeat(2048) + "0\r\n\r\n";
    let mut reader = RequestReader::new(LIMITS);
    for end in (0..text.len()).step_by(16) {
        assert!(matches!(
            reader.next(&text.as_bytes()[..end]),
            Ok(Progress::Partial(partial)) if partial.wanted_bytes > end
        ));
    }
    let Ok(Progress::Whole(request)) = reader.next(text.as_bytes()) else {
        panic!("it is whole");
    };
    assert_eq!((request.body.len(), request.bytes), (1 << 20, text.len()));
    assert_eq!(request.body.to_vec(), vec![b'x'; 1 << 20]);
}

#[test]
fn an_answer_has_one_line_for_each_header_whatever_its_value() {
    let mut out = Vec::new();
    http::write_head(&mut out, 400, &[("A", &"x\r\nB: y"), ("Content-Length", &3)]);
    let expected = "HTTP/1.1 400 Bad Request\r\nA: x  B: y\r\nContent-Length: 3\r\n\r\n";
    assert_eq!(String::from_utf8(out).as_deref(), Ok(expected));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        http::fuzz::read(&bytes);
    }

    #[test]
    fn no_chunks_make_it_panic(chunks in "[0-9a-f;\r\n ]{0,60}") {
        let text = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
        http::fuzz::read(text.as_bytes());
    }

    #[test]
    fn what_is_escaped_is_read_back(text in "\\PC{0,20}") {
        let target = Target::decode(&http::escape(&text)).expect("an escaped text is a path");
        prop_assert_eq!(target.path, text);
    }
}
