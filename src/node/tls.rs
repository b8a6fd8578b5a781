//! The TLS options of a manager or of a login.

use crate::server::TlsOptions;
use napi_derive::napi;

/// TLS options; certificates and keys are PEM.
#[napi(object)]
pub struct ManagerTlsOptions {
    /// The trusted certificates; null for the system's roots.
    pub ca: Option<String>,
    /// The client's certificate, followed by its chain up to the CA.
    pub cert: Option<String>,
    /// The private key of `cert`.
    pub key: Option<String>,
    /// The server name; null for the host.
    pub servername: Option<String>,
    /// Whether the server's certificate is checked.
    pub reject_unauthorized: bool,
}

impl From<ManagerTlsOptions> for TlsOptions {
    fn from(options: ManagerTlsOptions) -> Self {
        let ManagerTlsOptions { ca, cert, key, servername, reject_unauthorized } = options;
        Self { ca, cert, key, server_name: servername, verify: reject_unauthorized }
    }
}
