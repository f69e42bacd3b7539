//! Requests and their answers, as text: the first line is the operation, the body follows.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::support::{ask, with_service};

/// Plays a suite on one node. Ids and times of tables are not shown.
fn play(path: &str) {
    let cases: Rc<RefCell<Vec<(String, String)>>> = Rc::default();
    let text = std::fs::read_to_string(path).expect("the suite is there");
    let suite = testkit::Suite::parse(&text).expect("it is a suite");
    for case in &suite.cases {
        cases
            .borrow_mut()
            .push((case.command().to_owned(), case.input().to_owned()));
    }
    let answers: Rc<RefCell<VecDeque<String>>> = Rc::default();
    let filled = answers.clone();
    with_service(1, move |service| async move {
        let cases = std::mem::take(&mut *cases.borrow_mut());
        for (operation, body) in cases {
            let answer = ask(&service, &operation, &body).await;
            filled.borrow_mut().push_back(shown(&answer));
        }
    });
    testkit::run(path, |_| {
        answers.borrow_mut().pop_front().expect("each case was played")
    });
}

/// An answer without what chance and the clock decide.
fn shown(answer: &str) -> String {
    let mut shown = answer.to_owned();
    for name in ["\"TableId\":\"", "\"CreationDateTime\":"] {
        let Some(at) = shown.find(name).map(|at| at + name.len()) else {
            continue;
        };
        let end = shown[at..].find(['"', ',', '}']).map_or(shown.len(), |end| at + end);
        shown.replace_range(at..end, "…");
    }
    shown
}

#[test]
fn items() {
    play("tests/suites/items.txt");
}

#[test]
fn tables() {
    play("tests/suites/tables.txt");
}

#[test]
fn queries() {
    play("tests/suites/queries.txt");
}

#[test]
fn transactions() {
    play("tests/suites/transactions.txt");
}
