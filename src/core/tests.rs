//! The outcomes and losses after a defect has ended a core.

mod moving;
mod over_tcp;

use super::inputs::Input;
use super::{Caller, Handle, Reader, Submission, Watch};
use crate::machine::{
    Command, Config, HoldTerms, LeaseId, LossReason, Notice, OpId, Outcome, Wait,
};
use crate::protocol::{Failure, Mode, Mono};
use crate::server::{Address, Endpoint, LoginSource, MemoryStore};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

pub(super) const HANG: Duration = Duration::from_secs(20);

#[derive(Debug, PartialEq)]
enum Report {
    Ended(OpId, Outcome),
    Lost(LeaseId, LossReason),
}

/// A caller with a defect: asking for a heartbeat, as before the first renewal, panics.
struct Defective(Mutex<mpsc::Sender<Report>>);

impl Defective {
    fn report(&self, report: Report) {
        self.0.lock().unwrap().send(report).unwrap();
    }
}

impl Caller for Defective {
    fn complete(&self, op: OpId, outcome: Outcome) {
        self.report(Report::Ended(op, outcome));
    }
    fn lose(&self, lease: LeaseId, reason: LossReason) {
        self.report(Report::Lost(lease, reason));
    }
    fn tell(&self, _: Notice) {}
    fn ping(&self) {
        panic!("stands for any defect in a turn of the loop");
    }
    fn last_turn(&self) -> Mono {
        Mono::now()
    }
    fn wake(&self) {}
    fn watch(&self, _: Watch) {}
}

fn start(caller: &Arc<dyn Caller>) -> Handle {
    let client = "defective".to_owned();
    let endpoint = Endpoint {
        address: Address::Memory(MemoryStore::open(client.clone())),
        tls: None,
        login_source: LoginSource::fixed(None, None),
        db: 0,
        client_name: String::new(),
        channels: Vec::new(),
        connect_timeout: HANG,
        replicas: None,
    };
    Handle::start(config(client), endpoint, Arc::clone(caller), Reader::Keeper).unwrap()
}

pub(super) fn config(client: String) -> Config {
    Config {
        client,
        started: Mono::NEVER,
        secret: String::new(),
        prefix: String::new(),
        command_timeout: HANG,
        open_patience: Duration::ZERO,
        cluster: false,
        confirm: false,
        quorum: false,
        polling: None,
        linger_max: 10_000,
    }
}

pub(super) const fn hold(renew: bool) -> HoldTerms {
    HoldTerms {
        renew,
        leave_to_expire: false,
        max_hold: None,
        stall_timeout: HANG,
        linger: Duration::ZERO,
    }
}

fn acquire(renew: bool) -> Command {
    Command::Acquire {
        name: format!("renewed: {renew}"),
        ttl: if renew { Duration::from_millis(300) } else { HANG },
        wait: Wait::Never,
        label: Arc::default(),
        hold: hold(renew),
        mode: Mode::Exclusive,
    }
}

#[test]
fn a_core_that_panics_reports_the_loss_of_every_lease() {
    let (sender, reports) = mpsc::channel();
    let caller: Arc<dyn Caller> = Arc::new(Defective(Mutex::new(sender)));
    let handle = start(&caller);
    let submit = |op, command| {
        let _reported = handle.submit(&mut vec![Submission::Begin(OpId(op), command)]);
    };
    submit(1, Command::Open);
    assert_eq!(reports.recv_timeout(HANG), Ok(Report::Ended(OpId(1), Outcome::Done)));
    let mut leases = [false, true].map(|renew| {
        submit(2, acquire(renew));
        match reports.recv_timeout(HANG) {
            Ok(Report::Ended(_, Outcome::Acquired { lease, .. })) => lease,
            other => panic!("{other:?}"),
        }
    });
    let mut lost = [(); 2].map(|()| match reports.recv_timeout(HANG) {
        Ok(Report::Lost(lease, LossReason::Expired)) => {
            assert!(handle.shared().remaining(lease, Mono::now()).is_zero(), "no time is left");
            lease
        }
        other => panic!("{other:?}"),
    });
    leases.sort_unstable();
    lost.sort_unstable();
    assert_eq!(lost, leases);
    let stats = handle.shared().stats();
    assert_eq!((stats.held, stats.lost), (0, 2));
    // It takes no more operations, and ends them.
    let mut kept = vec![Submission::Begin(OpId(3), acquire(true))];
    let _reported = handle.submit(&mut kept);
    assert_eq!(reports.recv_timeout(HANG), Ok(Report::Ended(OpId(3), Outcome::Internal)));
}

#[test]
fn what_arrives_after_the_end_is_dropped() {
    let mail = super::inputs::Mail::new();
    let input = || Input::Discovered(Err(Failure::Lost(String::new())));
    mail.put(input());
    assert_eq!(mail.take().len(), 1);
    mail.put(input());
    mail.end();
    mail.put(input());
    assert!(mail.take().is_empty(), "what comes after the end is dropped");
}
