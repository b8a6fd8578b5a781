//! Logins that functions of JavaScript give.

use super::numbers::millis;
use super::tls::ManagerTlsOptions;
use crate::server::{Asked, Login, LoginSource, Tls};
use napi::Status;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Asks JavaScript for the login of a number, without keeping its event loop alive.
pub(super) type AskLogin = ThreadsafeFunction<u32, (), u32, Status, false, true>;

/// The logins of one environment that are asked for, by number.
#[derive(Default)]
pub(super) struct Logins(Mutex<BTreeMap<u32, Weak<Asked>>>);

/// A login, or why there is none.
#[napi(object)]
pub struct LoginAnswer {
    /// ACL user.
    pub username: Option<String>,
    /// Password.
    pub password: Option<String>,
    /// How long it is valid, in ms; null if it stays so.
    pub valid_for: Option<f64>,
    /// TLS of new connections; null for that of the answer before.
    pub tls: Option<ManagerTlsOptions>,
    /// Why there is none.
    pub failure: Option<String>,
    /// Whether nobody has asked.
    pub offered: bool,
}

impl LoginAnswer {
    fn read(self) -> Result<Login, String> {
        if let Some(why) = self.failure {
            return Err(why);
        }
        let mut login = Login::new(self.username, self.password);
        if let Some(tls) = self.tls {
            let tls = Tls::new(tls.into()).map_err(|bad| format!("options.tls.{bad}"))?;
            login.tls = Some(Arc::new(tls));
        }
        let chance = uuid::Uuid::new_v4().as_u64_pair().0;
        Ok(match self.valid_for {
            Some(valid_for) => login.valid_for(millis(valid_for), chance),
            None => login,
        })
    }
}

impl Logins {
    /// The login `number`, for which `ask` asks.
    pub(super) fn add(&self, number: u32, ask: &Arc<AskLogin>) -> LoginSource {
        let ask = Arc::clone(ask);
        let question =
            move || ask.call(number, ThreadsafeFunctionCallMode::NonBlocking) == Status::Ok;
        let asked = Arc::new(Asked::new(question));
        let mut logins = self.lock();
        logins.retain(|_, asked| asked.strong_count() > 0);
        logins.insert(number, Arc::downgrade(&asked));
        LoginSource::Asked(asked)
    }

    /// Takes an answer about the login `number`. False if its manager has ended.
    pub(super) fn answer(&self, number: u32, answer: LoginAnswer) -> bool {
        let asked = self.lock().get(&number).and_then(Weak::upgrade);
        let Some(asked) = asked else { return false };
        let offered = answer.offered;
        asked.answer(answer.read(), offered);
        true
    }

    /// A panic is handled where it is caught, so poison is ignored.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Weak<Asked>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
