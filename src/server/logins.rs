//! The logins of connections: a fixed one, or one that is asked for whenever a connection needs it.
//!
//! The function that answers may be slow, hang or fail, and an event loop may be blocked. So a connection uses the last answer if
//! the new one is late, and the new one once the server refuses the last.

use super::redis::Tls;
use crate::protocol::{Failure, Mono};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How long a connection waits for a new answer, if there is an earlier one.
const LATE_AFTER: Duration = Duration::from_millis(250);
/// The pause before a login that was not renewed is renewed again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// However short a login lasts, it is not renewed sooner.
const RENEW_AFTER_MIN: Duration = Duration::from_millis(100);
/// The part of its time after which a login is renewed, in percent: the rest is the margin. Random in between, so that the
/// processes of a service do not ask all at once.
const RENEW_PERCENT: std::ops::Range<u32> = 60..80;

/// The login of a connection.
#[derive(Clone, Default)]
pub struct Login {
    /// The ACL user; none for the default user.
    pub username: Option<String>,
    /// The password, if one is needed.
    pub password: Option<String>,
    /// When it stops being valid, and when it is renewed before; none if it stays valid.
    expiry: Option<Expiry>,
    /// The TLS of new connections; none for that of the endpoint.
    pub tls: Option<Arc<Tls>>,
}

#[derive(Clone, Copy)]
struct Expiry {
    expires: Mono,
    renew_at: Mono,
}

impl Login {
    /// A login that stays valid.
    #[must_use]
    pub const fn new(username: Option<String>, password: Option<String>) -> Self {
        Self { username, password, expiry: None, tls: None }
    }

    /// It is valid for this time from now. `chance`: a random number.
    #[must_use]
    pub fn valid_for(self, time: Duration, chance: u64) -> Self {
        let now = Mono::now();
        let spread = u64::from(RENEW_PERCENT.end - RENEW_PERCENT.start);
        let percent = RENEW_PERCENT.start + u32::try_from(chance % spread).unwrap_or(0);
        let after = (time / 100).saturating_mul(percent).max(RENEW_AFTER_MIN);
        Self { expiry: Some(Expiry { expires: now + time, renew_at: now + after }), ..self }
    }

    fn is_expired(&self) -> bool {
        self.expiry.is_some_and(|expiry| expiry.expires <= Mono::now())
    }

    /// Whether it must be renewed.
    fn is_due(&self) -> bool {
        self.expiry.is_some_and(|expiry| expiry.renew_at <= Mono::now())
    }

    /// Whether a server cannot tell them apart.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.username == other.username && self.password == other.password
    }
}

/// Shows neither passwords nor keys.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .finish_non_exhaustive()
    }
}

/// Where the login of a connection comes from.
#[derive(Clone, Debug)]
pub enum LoginSource {
    /// It is known.
    Fixed(Arc<Login>),
    /// It is asked for.
    Asked(Arc<Asked>),
}

impl LoginSource {
    /// A login that never changes.
    #[must_use]
    pub fn fixed(username: Option<String>, password: Option<String>) -> Self {
        Self::Fixed(Arc::new(Login::new(username, password)))
    }

    /// The login of a new connection. `patience`: when a question counts as lost, and is asked again.
    pub(super) async fn login(&self, patience: Duration) -> Result<Arc<Login>, Failure> {
        match self {
            Self::Fixed(login) => Ok(Arc::clone(login)),
            Self::Asked(asked) => asked.login(patience).await,
        }
    }

    /// Another login than `refused`, which the server has refused; none if there is no other.
    pub(super) async fn instead_of(
        &self,
        refused: &Login,
        patience: Duration,
    ) -> Result<Option<Arc<Login>>, Failure> {
        let Self::Asked(asked) = self else { return Ok(None) };
        let login = asked.ask(patience).await?;
        Ok((!login.is_same(refused)).then_some(login))
    }

    /// The login that follows `login`, as soon as that is due. `refused`: what a server has refused meanwhile. `failed` gets
    /// why there is none yet.
    pub(super) async fn next(
        &self,
        login: &Arc<Login>,
        refused: Option<&Login>,
        patience: Duration,
        failed: impl Fn(String),
    ) -> Arc<Login> {
        match self {
            Self::Fixed(_) => std::future::pending().await,
            Self::Asked(asked) => asked.next(login, refused, patience, failed).await,
        }
    }

    /// Waits before another attempt to log in again.
    pub(super) async fn pause() {
        sleep(RETRY_AFTER).await;
    }

    /// Whether an answer is waited for: the reason why a connection takes so long.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self, Self::Asked(asked) if asked.asking().is_some())
    }
}

/// A login that somebody else knows.
pub struct Asked {
    /// Asks for it; [`Asked::answer`] gets the answer. False if nobody will answer any more.
    question: Box<dyn Fn() -> bool + Send + Sync>,
    /// When the question without an answer was asked.
    asking: Mutex<Option<Mono>>,
    answers: watch::Sender<Answers>,
}

#[derive(Default)]
struct Answers {
    count: u64,
    last: Option<Arc<Login>>,
    /// Whether the last one was not asked for: every connection then logs in with it.
    offered: bool,
    /// Why the last question has no answer.
    failure: Option<String>,
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asked")
    }
}

impl Asked {
    /// A login for which `question` asks.
    #[must_use]
    pub fn new(question: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            question: Box::new(question),
            asking: Mutex::new(None),
            answers: watch::Sender::new(Answers::default()),
        }
    }

    /// The answer, or why there is none. One without TLS keeps that of the answer before. `offered`: nobody has asked, so
    /// every connection logs in with it.
    pub fn answer(&self, answer: Result<Login, String>, offered: bool) {
        *self.asking() = None;
        self.answers.send_modify(|answers| {
            answers.count += 1;
            match answer {
                Ok(mut login) => {
                    let before = answers.last.as_ref().and_then(|last| last.tls.clone());
                    login.tls = login.tls.or(before);
                    answers.last = Some(Arc::new(login));
                    answers.offered = offered;
                    answers.failure = None;
                }
                Err(why) => answers.failure = Some(why),
            }
        });
    }

    fn asking(&self) -> std::sync::MutexGuard<'_, Option<Mono>> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> Option<Arc<Login>> {
        self.answers.borrow().last.clone().filter(|last| !last.is_expired())
    }

    /// The answer to a question that is asked now, or that has no answer yet.
    async fn ask(&self, patience: Duration) -> Result<Arc<Login>, Failure> {
        let mut answers = self.answers.subscribe();
        let count = answers.borrow_and_update().count;
        self.begin(patience);
        let unanswered = || Failure::Lost("nobody answers for the login".to_owned());
        let answers = answers.wait_for(|answers| answers.count != count).await;
        let answers = answers.map_err(|_| unanswered())?;
        match (&answers.failure, &answers.last) {
            (Some(why), _) => Err(Failure::Lost(why.clone())),
            (None, last) => last.clone().ok_or_else(unanswered),
        }
    }

    /// Asks, unless that was done less than `patience` ago.
    fn begin(&self, patience: Duration) {
        let now = Mono::now();
        let mut asking = self.asking();
        if asking.is_some_and(|began| now.since(began) < patience) {
            return;
        }
        *asking = Some(now);
        drop(asking);
        if !(self.question)() {
            let why = "the thread that knows the login has ended".to_owned();
            self.answer(Err(why), false);
        }
    }

    async fn login(&self, patience: Duration) -> Result<Arc<Login>, Failure> {
        let Some(last) = self.last() else { return self.ask(patience).await };
        match timeout(LATE_AFTER, self.ask(patience)).await {
            Ok(Ok(login)) => Ok(login),
            // The server decides whether it still does.
            Ok(Err(_)) | Err(_) => Ok(last),
        }
    }

    async fn due(&self, login: &Login) {
        let left = login.expiry.map_or(Duration::MAX, |it| it.renew_at.since(Mono::now()));
        let mut answers = self.answers.subscribe();
        let offered = answers.wait_for(|answers| {
            let other = answers.last.as_ref().is_some_and(|last| !last.is_same(login));
            answers.offered && other
        });
        tokio::select! {
            () = sleep(left) => {}
            Ok(_) = offered => {}
        }
    }

    async fn next(
        &self,
        login: &Arc<Login>,
        refused: Option<&Login>,
        patience: Duration,
        failed: impl Fn(String),
    ) -> Arc<Login> {
        let mut login = Arc::clone(login);
        loop {
            self.due(&login).await;
            // Another connection may have asked meanwhile.
            let is_other = |last: &Arc<Login>| {
                let others = [Some(&*login), refused];
                others.into_iter().flatten().all(|other| !last.is_same(other)) && !last.is_due()
            };
            if let Some(last) = self.last().filter(is_other) {
                return last;
            }
            match timeout(patience, self.ask(patience)).await {
                Ok(Ok(next)) if !next.is_same(&login) => return next,
                // It is valid for longer than was known, or is given out until its end.
                Ok(Ok(same)) if !same.is_due() => login = same,
                Ok(Ok(_)) => sleep(RETRY_AFTER).await,
                Ok(Err(failure)) => {
                    failed(failure.to_string());
                    sleep(RETRY_AFTER).await;
                }
                Err(_) => failed("the function that gives the login has not answered".to_owned()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    const PATIENCE: Duration = Duration::from_secs(5);

    fn login(password: &str) -> Login {
        Login::new(None, Some(password.to_owned()))
    }

    /// Counts the questions, which nobody answers.
    fn asked() -> (Arc<Asked>, Arc<AtomicU32>) {
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        let asked = Asked::new(move || counted.fetch_add(1, Ordering::Relaxed) < u32::MAX);
        (Arc::new(asked), count)
    }

    fn password(login: &Login) -> &str {
        login.password.as_deref().unwrap_or_default()
    }

    #[tokio::test]
    async fn connections_that_ask_at_once_ask_once() {
        let (asked, count) = asked();
        let answer = async {
            tokio::task::yield_now().await;
            asked.answer(Ok(login("a")), false);
        };
        let (one, two, ()) = tokio::join!(asked.login(PATIENCE), asked.login(PATIENCE), answer);
        assert_eq!((password(&one.unwrap()), password(&two.unwrap())), ("a", "a"));
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_late_answer_is_not_waited_for_if_there_is_an_earlier_one() {
        let (asked, _) = asked();
        asked.answer(Ok(login("a")), false);
        assert_eq!(password(&asked.login(PATIENCE).await.unwrap()), "a");
        let login_source = LoginSource::Asked(Arc::clone(&asked));
        let refused = login("a");
        let late = async {
            sleep(LATE_AFTER).await;
            asked.answer(Ok(login("b")), false);
        };
        let (other, ()) = tokio::join!(login_source.instead_of(&refused, PATIENCE), late);
        assert_eq!(other.unwrap().as_deref().map(password), Some("b"));
    }

    #[tokio::test]
    async fn a_failure_is_told_unless_there_is_an_earlier_answer() {
        let asked = Arc::new(Asked::new(|| false));
        assert!(matches!(asked.login(PATIENCE).await, Err(Failure::Lost(_))), "a failure is told");
        asked.answer(Ok(login("a")), false);
        assert_eq!(password(&asked.login(PATIENCE).await.unwrap()), "a");
    }

    #[tokio::test]
    async fn an_expired_answer_is_not_used_again() {
        let asked = Arc::new(Asked::new(|| false));
        asked.answer(Ok(login("a").valid_for(Duration::ZERO, 0)), false);
        assert!(asked.login(PATIENCE).await.is_err(), "the expired answer is not used");
    }

    #[tokio::test]
    async fn what_is_offered_is_due_at_once() {
        let (asked, _) = asked();
        let first = Arc::new(login("a"));
        let offer = async {
            tokio::task::yield_now().await;
            asked.answer(Ok(login("b")), true);
        };
        let (next, ()) = tokio::join!(asked.next(&first, None, PATIENCE, drop), offer);
        assert_eq!(password(&next), "b");
    }

    /// The next login after `login`, and what failed until then.
    async fn followed(asked: &Asked, login: Login, refused: Option<&Login>) -> (String, u32) {
        let told = AtomicU32::new(0);
        let failed = |_| {
            told.fetch_add(1, Ordering::Relaxed);
        };
        let login = Arc::new(login);
        let next = asked.next(&login, refused, PATIENCE, failed);
        let next = timeout(PATIENCE, next).await.expect("another one follows");
        (password(&next).to_owned(), told.load(Ordering::Relaxed))
    }

    /// A login that is due in a moment.
    fn due(password: &str) -> Login {
        login(password).valid_for(Duration::ZERO, 0)
    }

    #[tokio::test]
    async fn what_another_connection_has_got_is_not_asked_for_again() {
        for (last, refused, answer, expected, questions) in [
            (login("b"), None, None, "b", 0),
            // The server has refused it, it is the same, or is due as well.
            (login("b"), Some(login("b")), Some("c"), "c", 1),
            (login("a"), None, Some("c"), "c", 1),
            (due("b"), None, Some("c"), "c", 1),
        ] {
            let (asked, count) = asked();
            asked.answer(Ok(last), false);
            let answering = async {
                while count.load(Ordering::Relaxed) < questions {
                    tokio::task::yield_now().await;
                }
                if let Some(answer) = answer {
                    asked.answer(Ok(login(answer)), false);
                }
            };
            let following = followed(&asked, due("a"), refused.as_ref());
            let ((next, failures), ()) = tokio::join!(following, answering);
            assert_eq!((&*next, failures), (expected, 0));
            assert_eq!(count.load(Ordering::Relaxed), questions);
        }
    }

    #[tokio::test]
    async fn a_login_that_cannot_be_renewed_is_told() {
        let asked = Asked::new(|| false);
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let first = Arc::new(due("a"));
        tokio::select! {
            next = asked.next(&first, None, PATIENCE, |why| tell.send(why).unwrap()) => panic!("{next:?}"),
            why = told.recv() => assert!(why.unwrap().contains("has ended"), "it says why"),
        }
        let (silent, count) = self::asked();
        let patience = Duration::from_millis(5);
        let mut silences = 0;
        let failed = |why: String| tell.send(why).unwrap();
        let next = silent.next(&first, None, patience, failed);
        let hearing = async {
            while silences < 2 {
                let why = told.recv().await.unwrap();
                assert!(why.contains("has not answered"), "{why}");
                silences += 1;
            }
        };
        tokio::select! {
            next = next => panic!("{next:?}"),
            () = hearing => {}
        }
        assert!(count.load(Ordering::Relaxed) >= 2, "a question that is lost is asked again");
    }

    #[tokio::test]
    async fn what_fails_at_once_is_asked_again_after_a_pause() {
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        let failing = Asked::new(move || counted.fetch_add(1, Ordering::Relaxed) == u32::MAX);
        let first = Arc::new(due("a"));
        let next = timeout(RETRY_AFTER / 4, failing.next(&first, None, PATIENCE, drop)).await;
        assert!(next.is_err(), "nobody gives another login");
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_login_that_lasts_longer_than_was_known_is_kept() {
        let (asked, count) = asked();
        let answering = async {
            for password in ["a", "b"] {
                let before = count.load(Ordering::Relaxed);
                while count.load(Ordering::Relaxed) == before {
                    tokio::task::yield_now().await;
                }
                let lasts = if password == "a" { due(password) } else { login(password) };
                asked.answer(Ok(lasts), false);
            }
        };
        let ((next, failures), ()) = tokio::join!(followed(&asked, due("a"), None), answering);
        assert_eq!((&*next, failures, count.load(Ordering::Relaxed)), ("b", 0, 2));
    }

    #[tokio::test]
    async fn only_what_is_offered_and_new_is_due_at_once() {
        for (password, offered) in [("a", true), ("b", false)] {
            let (asked, _) = asked();
            asked.answer(Ok(login(password)), offered);
            let due = timeout(Duration::from_millis(5), async {
                asked.due(&login("a")).await;
            });
            assert!(due.await.is_err(), "it is not due: {password}");
        }
        // A failure leaves what was offered before.
        let (asked, _) = asked();
        asked.answer(Ok(login("b")), true);
        asked.answer(Err("no".to_owned()), false);
        timeout(PATIENCE, asked.due(&login("a"))).await.expect("it is due");
    }

    #[tokio::test]
    async fn an_answer_without_tls_keeps_that_of_the_answer_before() {
        let (asked, _) = asked();
        let tls = |name: &str| {
            let options = crate::server::TlsOptions {
                ca: None,
                cert: None,
                key: None,
                server_name: Some(name.to_owned()),
                verify: false,
            };
            Some(Arc::new(Tls::new(options).unwrap()))
        };
        for (given, kept) in [(tls("one"), "one"), (None, "one"), (tls("two"), "two")] {
            asked.answer(Ok(Login { tls: given, ..login("a") }), false);
            let last = asked.last().unwrap();
            let shown = format!("{:?}", last.tls);
            assert!(shown.contains(kept), "{shown}");
        }
    }

    #[tokio::test]
    async fn a_failure_is_that_of_the_last_question() {
        let (asked, count) = asked();
        for answer in [Ok(login("a")), Err("no".to_owned()), Ok(login("b"))] {
            let expected = answer.as_ref().map(|login| password(login).to_owned());
            let expected = expected.map_err(|why| Failure::Lost(why.clone()));
            let answering = async {
                tokio::task::yield_now().await;
                asked.answer(answer.clone(), false);
            };
            let (told, ()) = tokio::join!(asked.ask(PATIENCE), answering);
            assert_eq!(told.map(|login| password(&login).to_owned()), expected);
        }
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_login_that_is_fixed_is_the_only_one() {
        let fixed = LoginSource::fixed(Some("app".to_owned()), Some("a".to_owned()));
        let first = fixed.login(PATIENCE).await.unwrap();
        assert!(!fixed.is_asking(), "it is known");
        assert!(fixed.instead_of(&login("b"), PATIENCE).await.unwrap().is_none());
        let next = fixed.next(&first, None, PATIENCE, drop);
        assert!(timeout(Duration::from_millis(1), next).await.is_err(), "none follows");
        assert!(first.is_same(&first), "it is itself");
        assert!(!first.is_same(&login("a")), "the user differs");
        let user = Login::new(first.username.clone(), None);
        assert!(!first.is_same(&user), "the password differs");
    }

    #[test]
    fn the_time_of_a_renewal_is_spread_between_two_parts_of_the_whole() {
        let whole = Duration::from_secs(100);
        for (chance, margin_s) in [(0, 40), (19, 21), (20, 40)] {
            let expiry = login("a").valid_for(whole, chance).expiry.unwrap();
            assert_eq!(expiry.expires.since(expiry.renew_at), Duration::from_secs(margin_s));
        }
        let expiry = login("a").valid_for(Duration::ZERO, 0).expiry.unwrap();
        assert_eq!(expiry.renew_at.since(expiry.expires), RENEW_AFTER_MIN);
    }

    #[test]
    fn a_login_is_renewed_well_before_it_ends() {
        for chance in 0..40 {
            let Some(expiry) = login("a").valid_for(PATIENCE, chance).expiry else { panic!() };
            let margin = expiry.expires.since(expiry.renew_at);
            assert!(margin >= PATIENCE / 5 && margin <= PATIENCE / 2, "{margin:?}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let shown = format!("{:?}", Login { username: Some("app".to_owned()), ..login("s3cret") });
        assert!(shown.contains("app") && shown.contains("***"), "the rest is shown: {shown}");
        assert!(!shown.contains("s3cret"), "the password is hidden");
    }
}
