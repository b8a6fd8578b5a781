//! What one lock may do, and what it must not, in histories of a few lines.

#![allow(clippy::unwrap_used, missing_docs)]

use holdfast_judge::record::{Record, parse};
use holdfast_judge::verdict::judge;

/// Whether a history is linearizable. Each line is `process action call return` and more fields as JSON.
fn fine(lines: &[&str]) -> bool {
    let mut text = r#"{"format":"holdfast-history/1","title":"test"}"#.to_owned();
    for line in lines {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        let [process, action, call, returned, more] = words[..] else { unreachable!("{line}") };
        let answer =
            if returned == "-" { String::new() } else { format!(r#","return":{returned}"#) };
        let record = format!(
            "\n{{\"process\":\"{process}\",\"lock\":\"a\",\"action\":\"{action}\",\"call\":{call}{answer},{more}}}"
        );
        text.push_str(&record);
    }
    let file = parse(&text).unwrap();
    let records: Vec<&Record> = file.records.iter().collect();
    judge(&records).broken.is_none()
}

const A: &str = r#"p acquire 1 2 "outcome":"ok","hold":"A","fence":5,"until":50"#;
const A_FREES: &str = r#"p release 10 12 "outcome":"ok","hold":"A""#;

#[test]
fn one_owner_after_the_other() {
    assert!(fine(&[
        A,
        A_FREES,
        r#"q acquire 3 14 "outcome":"ok","hold":"B","fence":6,"until":60"#
    ]));
}

#[test]
fn a_second_owner_ahead_of_the_release() {
    assert!(!fine(&[
        A,
        A_FREES,
        r#"q acquire 3 9 "outcome":"ok","hold":"B","fence":6,"until":60"#
    ]));
}

#[test]
fn a_second_owner_within_the_lease() {
    assert!(!fine(&[A, r#"q acquire 3 49 "outcome":"ok","hold":"B","fence":6,"until":90"#]));
    assert!(fine(&[A, r#"q acquire 3 51 "outcome":"ok","hold":"B","fence":6,"until":90"#]));
}

#[test]
fn a_lease_that_was_lengthened() {
    let longer = r#"p extend 20 22 "outcome":"ok","hold":"A","until":80"#;
    assert!(!fine(&[A, longer, r#"q acquire 3 79 "outcome":"ok","hold":"B","fence":6"#]));
    assert!(fine(&[A, longer, r#"q acquire 3 81 "outcome":"ok","hold":"B","fence":6"#]));
    let unsure = r#"p extend 20 22 "outcome":"unknown","hold":"A","until":80"#;
    assert!(fine(&[A, unsure, r#"q acquire 3 51 "outcome":"ok","hold":"B","fence":6"#]));
}

#[test]
fn a_holder_that_reads_that_it_holds_the_lock_of_another() {
    let held = r#"p held 55 56 "outcome":"ok","hold":"A","until":60"#;
    assert!(!fine(&[A, held, r#"q acquire 3 52 "outcome":"ok","hold":"B","fence":6"#]));
}

#[test]
fn a_release_without_an_answer_may_be_done_at_any_time_or_never() {
    for unknown in
        [r#"p release 10 - "hold":"A""#, r#"p release 10 12 "outcome":"unknown","hold":"A""#]
    {
        assert!(!fine(&[A, unknown, r#"q acquire 3 9 "outcome":"ok","hold":"B","fence":6"#]));
        assert!(fine(&[A, unknown, r#"q acquire 3 11 "outcome":"ok","hold":"B","fence":6"#]));
        assert!(fine(&[A, unknown, r#"q acquire 3 70 "outcome":"ok","hold":"B","fence":6"#]));
    }
}

#[test]
fn an_acquire_without_an_answer_and_one_that_was_refused() {
    assert!(fine(&[
        r#"q acquire 1 - "mode":"exclusive""#,
        A,
        r#"r acquire 4 5 "outcome":"refused""#
    ]));
}

#[test]
fn fences_that_do_not_rise() {
    for fence in [4, 5] {
        let b = format!(r#"q acquire 13 14 "outcome":"ok","hold":"B","fence":{fence}"#);
        assert!(!fine(&[A, A_FREES, &b]), "{fence}");
    }
}

#[test]
fn fences_in_the_order_of_the_grants_not_of_the_calls() {
    let late = r#"q acquire 0 60 "outcome":"ok","hold":"B","fence":6,"until":90"#;
    assert!(fine(&[late, A, A_FREES]));
    let early = r#"q acquire 0 60 "outcome":"ok","hold":"B","fence":4"#;
    assert!(fine(&[early, A, A_FREES]));
}

#[test]
fn permits() {
    let share = |name: &str, fence: u64, limit: u64, call: u64| {
        format!(
            r#"{name} acquire {call} {} "outcome":"ok","mode":"shared","limit":{limit},"hold":"{name}","fence":{fence},"until":50"#,
            call + 1
        )
    };
    let two = [share("p", 1, 2, 1), share("q", 2, 2, 3)];
    assert!(fine(&[&two[0], &two[1]]));
    assert!(!fine(&[&two[0], &two[1], &share("r", 3, 2, 5)]));
    assert!(fine(&[&two[0], &two[1], &share("r", 3, 3, 5)]));
    assert!(fine(&[&two[0], &two[1], &share("r", 3, 2, 60)]));
    assert!(!fine(&[&two[0], r#"q acquire 3 4 "outcome":"ok","hold":"W","fence":9"#]));
    assert!(!fine(&[A, &share("q", 9, 2, 5)]));
}

#[test]
fn a_downgrade_lets_shares_in_and_no_whole_lock() {
    let share = r#"q acquire 20 22 "outcome":"ok","mode":"shared","hold":"B","fence":6"#;
    let whole = r#"q acquire 20 22 "outcome":"ok","hold":"B","fence":6"#;
    for downgrade in
        [r#"p downgrade 10 12 "outcome":"ok","hold":"A""#, r#"p downgrade 10 - "hold":"A""#]
    {
        assert!(fine(&[A, downgrade, share]));
        assert!(!fine(&[A, downgrade, whole]));
    }
    let refused = r#"p downgrade 10 12 "outcome":"refused","hold":"A""#;
    assert!(!fine(&[A, refused, share]));
}

#[test]
fn a_lock_that_was_entered_again() {
    let enter = r#"p reenter 5 6 "outcome":"ok","hold":"A","fence":5"#;
    let leave = r#"p leave 7 8 "outcome":"ok","hold":"A""#;
    assert!(fine(&[A, enter, leave, A_FREES]));
    // The inner one must not free it.
    assert!(!fine(&[A, enter, leave, r#"q acquire 8 9 "outcome":"ok","hold":"B","fence":6"#]));
    assert!(!fine(&[A, r#"p reenter 5 6 "outcome":"ok","hold":"A","fence":6"#, leave]));
    assert!(!fine(&[A, leave]));
}

#[test]
fn a_lock_that_another_process_adopts() {
    let adopt = r#"q adopt 20 22 "outcome":"ok","hold":"B","fence":6,"from":5,"until":90"#;
    assert!(fine(&[A, adopt]));
    assert!(!fine(&[
        A,
        A_FREES,
        r#"r acquire 14 15 "outcome":"ok","hold":"C","fence":7,"until":60"#,
        adopt
    ]));
    assert!(!fine(&[A, adopt, r#"r acquire 60 61 "outcome":"ok","hold":"C","fence":7"#]));
    let unknown = r#"q adopt 20 22 "outcome":"unknown","from":5"#;
    assert!(!fine(&[A, unknown, r#"r acquire 18 19 "outcome":"ok","hold":"C","fence":7"#]));
    assert!(fine(&[A, unknown, r#"r acquire 21 23 "outcome":"ok","hold":"C","fence":7"#]));
}

#[test]
fn a_fault_excuses_those_who_had_the_lock_and_no_fence() {
    let fault = r#"f forget 10 20 "outcome":"ok""#;
    let during = r#"q acquire 14 15 "outcome":"ok","hold":"B","fence":6,"until":60"#;
    assert!(fine(&[A, fault, during]));
    assert!(!fine(&[A, fault, r#"q acquire 14 15 "outcome":"ok","hold":"B","fence":4"#]));
    let after = r#"r acquire 30 31 "outcome":"ok","hold":"C","fence":7,"until":60"#;
    assert!(fine(&[A, fault, during, after]));
    assert!(!fine(&[A, fault, after, r#"s acquire 40 41 "outcome":"ok","hold":"D","fence":8"#]));
}

#[test]
fn a_loss_that_was_noticed_ends_a_hold_ahead_of_its_lease() {
    let held = r#"p held 10 11 "outcome":"ok","hold":"A","until":50"#;
    let lost = r#"p lost 20 - "hold":"A""#;
    assert!(fine(&[A, held, lost, r#"q acquire 12 13 "outcome":"ok","hold":"B","fence":6"#]));
    assert!(!fine(&[A, held, lost, r#"q acquire 8 9 "outcome":"ok","hold":"B","fence":6"#]));
}

#[test]
fn the_first_wrong_record_is_named() {
    let text = [A, A_FREES];
    assert!(fine(&text));
    let file = parse(concat!(
        r#"{"format":"holdfast-history/1","title":"t"}"#, "\n",
        r#"{"process":"p","lock":"a","action":"acquire","hold":"A","call":1,"return":2,"outcome":"ok","until":50}"#, "\n",
        r#"{"process":"q","lock":"a","action":"acquire","hold":"B","call":3,"return":4,"outcome":"ok","until":60}"#, "\n",
        r#"{"process":"q","lock":"a","action":"held","hold":"B","call":5,"return":6,"outcome":"ok","until":60}"#,
    ))
    .unwrap();
    let records: Vec<&Record> = file.records.iter().collect();
    assert_eq!(judge(&records).broken.unwrap().hold.as_deref(), Some("B"));
}

#[test]
fn another_form_is_refused() {
    assert!(parse(r#"{"format":"holdfast-history/2","title":"t"}"#).is_err());
    assert!(parse("nonsense").is_err());
    assert!(parse(concat!(r#"{"format":"holdfast-history/1","title":"t"}"#, "\n{}")).is_err());
}
