//! TLS: trust, client certificates, and error texts for people.

use super::hybrid::provider;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error,
    InconsistentKeys, OtherError, RootCertStore, SignatureScheme,
};
use std::fmt;
use std::io;
use std::sync::Arc;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream, rustls};

/// The TLS options for a server. Certificates and keys are PEM.
///
/// Not `Debug`, so that a key cannot be shown by accident.
pub struct TlsOptions {
    /// The trusted certificates; none for the system's roots.
    pub ca: Option<String>,
    /// This client's certificate, followed by its chain up to the CA.
    pub cert: Option<String>,
    /// The private key of `cert`, not encrypted.
    pub key: Option<String>,
    /// The name to request and to verify in the server's certificate; none for the host.
    pub server_name: Option<String>,
    /// Whether the server's certificate is checked at all.
    pub verify: bool,
}

/// An unusable option. The text shows no key or certificate.
#[derive(Debug, Eq, Error, PartialEq)]
#[error("{option} {problem}")]
pub struct BadOption {
    option: &'static str,
    problem: String,
}

/// A validated TLS client configuration. Any number of endpoints can share it.
///
/// Its `Debug` shows no key.
pub struct Tls {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

impl Tls {
    /// Reads certificates and keys, and the system's roots (from files) if no others are given.
    ///
    /// # Errors
    /// - If a certificate, the key or the name is invalid.
    /// - If the key does not match the certificate, or one of both is missing.
    /// - If the system has no roots and none are given.
    pub fn new(options: TlsOptions) -> Result<Self, BadOption> {
        let TlsOptions { ca, cert, key, server_name, verify } = options;
        let provider = Arc::new(provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| bad("tls", format!("cannot be used: {error}")))?;
        let trust = if verify { Trust::given(ca.as_deref(), &provider)? } else { Trust::Anyone };
        let verifier = Arc::new(Verifier { trust, provider: Arc::clone(&provider) });
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let config = match identity(cert.as_deref(), key.as_deref(), &provider)? {
            Some(identity) => builder.with_client_cert_resolver(Arc::new(identity)),
            None => builder.with_no_client_auth(),
        };
        let server_name = server_name
            .map(|name| {
                ServerName::try_from(name).map_err(|_| bad("servername", "is no host name"))
            })
            .transpose()?;
        Ok(Self { config: Arc::new(config), server_name })
    }

    /// Shakes hands with the server `host` at the other end of `stream`.
    ///
    /// # Errors
    /// If it fails; the error gives the reason and a remedy.
    pub(super) async fn connect(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(io::Error::other)?,
        };
        let connected = TlsConnector::from(Arc::clone(&self.config)).connect(name, stream).await;
        connected.map_err(|error| match explained(error) {
            error if error.kind() == FAILED => error,
            // The server closed the connection.
            error => io::Error::new(error.kind(), format!("{error}{NO_TLS_HINT}")),
        })
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

fn bad(option: &'static str, problem: impl Into<String>) -> BadOption {
    BadOption { option, problem: problem.into() }
}

/// The trusted certificates: those in `ca`, or the system's.
fn roots(given: &[CertificateDer<'static>]) -> Result<RootCertStore, BadOption> {
    let mut roots = RootCertStore::empty();
    for certificate in given {
        roots.add(certificate.clone()).map_err(|_| bad("ca", NOT_READABLE))?;
    }
    if !given.is_empty() {
        return Ok(roots);
    }
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let errors: String =
            found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(bad("ca", format!("is needed: this system has no root certificates{errors}")));
    }
    Ok(roots)
}

/// The client certificate, if there is one.
fn identity(
    cert: Option<&str>,
    key: Option<&str>,
    provider: &CryptoProvider,
) -> Result<Option<SingleCertAndKey>, BadOption> {
    let (cert, key) = match (cert, key) {
        (Some(cert), Some(key)) => (cert, key),
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(bad("key", "is missing: cert needs it")),
        (None, Some(_)) => return Err(bad("cert", "is missing: key needs it")),
    };
    let chain = certificates("cert", cert)?;
    if key.contains("ENCRYPTED") {
        return Err(bad("key", "is encrypted: decrypt it first, as with openssl pkey"));
    }
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| {
        bad("key", "holds no private key in PEM form (-----BEGIN PRIVATE KEY-----)")
    })?;
    match CertifiedKey::from_der(chain, key, provider) {
        Ok(identity) => Ok(Some(identity.into())),
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(bad("key", "is not the key of cert"))
        }
        Err(Error::InvalidCertificate(_)) => Err(bad("cert", NOT_READABLE)),
        Err(_) => {
            Err(bad("key", "is of a kind that is not supported: use RSA, P-256, P-384 or Ed25519"))
        }
    }
}

fn certificates(
    option: &'static str,
    pem: &str,
) -> Result<Vec<CertificateDer<'static>>, BadOption> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(bad(option, "holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)")),
    }
}

/// The remedy when a server reacts to TLS as one that does not support it.
pub(super) const NO_TLS_HINT: &str = "; if the server does not speak TLS there, use redis://";
/// A server without TLS.
const NOT_SPOKEN: &str = "the server does not speak TLS on this port: use its TLS port, or redis:// in place of rediss://";
/// The kind of errors of TLS itself.
const FAILED: io::ErrorKind = io::ErrorKind::ConnectionAborted;
const NOT_READABLE: &str = "holds a certificate that cannot be read";

/// Checks the certificate of a server as `trust` says, and that the server has its key.
#[derive(Debug)]
struct Verifier {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

/// Which certificates of servers are accepted.
#[derive(Debug)]
enum Trust {
    /// All of them.
    Anyone,
    /// Those that the trusted certificates have signed, and a given certificate itself, as the clients of OpenSSL do: a
    /// self-signed one often calls itself a CA, which is otherwise no certificate for a server.
    Given { signed: Arc<WebPkiServerVerifier>, given: Vec<CertificateDer<'static>> },
}

impl Trust {
    /// Trusts the certificates in `ca`, or those of the system.
    fn given(ca: Option<&str>, provider: &Arc<CryptoProvider>) -> Result<Self, BadOption> {
        let given = ca.map_or_else(|| Ok(Vec::new()), |ca| certificates("ca", ca))?;
        let roots = Arc::new(roots(&given)?);
        let signed = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider));
        let signed = signed.build().map_err(|_| bad("ca", NOT_READABLE))?;
        Ok(Self::Given { signed, given })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Trust::Given { signed, given } = &self.trust else {
            return Ok(ServerCertVerified::assertion());
        };
        match signed.verify_server_cert(certificate, between, name, ocsp, now) {
            // The dates were checked before, as a test shows.
            Err(Error::InvalidCertificate(CertificateError::Other(other)))
                if is_of_a_ca(&other) && given.iter().any(|given| given == certificate) =>
            {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Replaces the text of the TLS library by one for people.
pub(super) fn explained(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return io::Error::new(error.kind(), "the server closed the connection");
    }
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner.map(explain) {
        Some(text) => io::Error::new(FAILED, text),
        None => error,
    }
}

/// The error for a server that has answered without TLS.
pub(super) fn not_spoken() -> io::Error {
    io::Error::new(FAILED, NOT_SPOKEN)
}

fn explain(error: &Error) -> String {
    match error {
        Error::AlertReceived(alert) => refused(*alert),
        Error::InvalidCertificate(problem) => distrusted(problem),
        Error::InvalidMessage(_) => NOT_SPOKEN.to_owned(),
        Error::PeerIncompatible(why) => {
            format!(
                "the server and this client support no common form of TLS ({why:?}): the server needs TLS 1.2 \
                 or 1.3 with a current cipher suite"
            )
        }
        other => format!("TLS failed: {other}"),
    }
}

/// The server's certificate was rejected.
fn distrusted(problem: &CertificateError) -> String {
    let (what, cure) = match problem {
        // A CA of the same name with another key is another CA.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => (
            "is not signed by an authority that this client trusts".to_owned(),
            "give the certificate of its CA in options.tls.ca",
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("has expired".to_owned(), "renew it, or set this machine's clock")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("is not valid yet".to_owned(), "set this machine's clock, or the server's")
        }
        CertificateError::NotValidForName => ("is for another name".to_owned(), ANOTHER_NAME),
        CertificateError::NotValidForNameContext { expected, presented } => {
            (format!("is not for {}, but for {}", expected.to_str(), list(presented)), ANOTHER_NAME)
        }
        CertificateError::Other(other) if is_of_a_ca(other) => (
            "is the certificate of a CA, as a self-signed one often is".to_owned(),
            "give this certificate itself in options.tls.ca, or give the server one of its own, signed by that CA",
        ),
        other => (format!("cannot be used: {other}"), "give the server another one"),
    };
    format!("the server's certificate {what}: {cure}")
}

/// The names in a certificate, which rustls writes as `DnsName("localhost")`.
fn list(presented: &[String]) -> String {
    let plain = |name: &String| {
        let inner = name.split_once('(').map_or(name.as_str(), |(_, inner)| inner);
        inner.trim_end_matches(')').trim_matches('"').to_owned()
    };
    let names: Vec<String> = presented.iter().map(plain).collect();
    if names.is_empty() { "no name at all".to_owned() } else { names.join(", ") }
}

fn is_of_a_ca(error: &OtherError) -> bool {
    matches!(error.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

const ANOTHER_NAME: &str = "connect by a name in its subjectAltName, or set options.tls.servername";

/// The server ended the handshake.
fn refused(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "the server wants a client certificate: give options.tls.cert and options.tls.key"
                .to_owned()
        }
        // TLS 1.2's alert for the TLS 1.3 alert above.
        AlertDescription::HandshakeFailure => {
            "the server refused the TLS handshake: it may want a \
             client certificate (options.tls.cert and options.tls.key), or another cipher suite or group"
                .to_owned()
        }
        AlertDescription::AccessDenied
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::DecryptError
        | AlertDescription::UnknownCA
        | AlertDescription::UnsupportedCertificate => format!(
            "the server does not accept the client certificate ({alert:?}): give one that it does \
             in options.tls.cert and options.tls.key"
        ),
        AlertDescription::UnrecognisedName => {
            "the server has no certificate for this name: set options.tls.servername".to_owned()
        }
        AlertDescription::InsufficientSecurity | AlertDescription::ProtocolVersion => {
            format!(
                "the server refused the TLS handshake ({alert:?}): it must speak TLS 1.2 or 1.3"
            )
        }
        other => format!("the server ended TLS: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: TlsOptions =
        TlsOptions { ca: None, cert: None, key: None, server_name: None, verify: false };

    fn problem(options: TlsOptions) -> String {
        Tls::new(options).unwrap_err().to_string()
    }

    #[test]
    fn an_option_that_cannot_be_used_is_named_and_not_shown() {
        let text = || Some("s3cret".to_owned());
        let pem = |what| Some(format!("-----BEGIN {what}-----\nAAAA\n-----END {what}-----\n"));
        for (options, expected) in [
            (TlsOptions { ca: text(), verify: true, ..NOTHING }, "ca holds no certificate"),
            (TlsOptions { ca: pem("CERTIFICATE"), verify: true, ..NOTHING }, "ca holds a cert"),
            (TlsOptions { cert: text(), ..NOTHING }, "key is missing"),
            (TlsOptions { key: text(), ..NOTHING }, "cert is missing"),
            (TlsOptions { cert: text(), key: text(), ..NOTHING }, "cert holds no certificate"),
            (TlsOptions { cert: pem("CERTIFICATE"), key: text(), ..NOTHING }, "key holds no"),
            (
                TlsOptions { cert: pem("CERTIFICATE"), key: pem("PRIVATE KEY"), ..NOTHING },
                "key is of a kind that is not supported",
            ),
            (
                TlsOptions {
                    cert: pem("CERTIFICATE"),
                    key: pem("ENCRYPTED PRIVATE KEY"),
                    ..NOTHING
                },
                "key is encrypted",
            ),
            (TlsOptions { server_name: Some("a b".to_owned()), ..NOTHING }, "servername is no"),
        ] {
            let problem = problem(options);
            assert!(problem.starts_with(expected), "{problem}");
            assert!(!problem.contains("s3cret"), "{problem}");
        }
    }

    #[test]
    fn a_failure_says_what_is_wrong_and_what_to_do() {
        let name = ServerName::try_from("redis.test").unwrap();
        let presented = vec!["DnsName(\"a.test\")".to_owned(), "IpAddress(::1)".to_owned()];
        let alert = Error::AlertReceived;
        for (error, expected) in [
            (CertificateError::UnknownIssuer.into(), "options.tls.ca"),
            (CertificateError::BadSignature.into(), "options.tls.ca"),
            (CertificateError::Expired.into(), "expired: renew"),
            (CertificateError::NotValidYet.into(), "not valid yet"),
            (
                CertificateError::NotValidForNameContext { expected: name, presented }.into(),
                "is not for redis.test, but for a.test, ::1: connect by a name",
            ),
            (CertificateError::Revoked.into(), "another one"),
            (alert(AlertDescription::CertificateRequired), "wants a client certificate"),
            (alert(AlertDescription::HandshakeFailure), "may want a client certificate"),
            (alert(AlertDescription::UnknownCA), "does not accept the client certificate"),
            (alert(AlertDescription::ProtocolVersion), "TLS 1.2 or 1.3"),
            (alert(AlertDescription::UnrecognisedName), "options.tls.servername"),
            (Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType), "redis://"),
        ] {
            let text = explained(io::Error::new(io::ErrorKind::InvalidData, error)).to_string();
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        let reset = explained(io::ErrorKind::ConnectionReset.into());
        assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
    }
}
