//! The key exchange X25519MLKEM768: a connection that is recorded today stays secret unless X25519 and ML-KEM are both
//! broken, as X25519 alone may be by a quantum computer. The order of its parts is that of draft-ietf-tls-ecdhe-mlkem.

use ml_kem::kem::{Ciphertext, Decapsulate, KeyExport};
use ml_kem::{DecapsulationKey768, MlKem768, Seed};
use rustls::crypto::ring::{default_provider, kx_group::X25519};
use rustls::crypto::{ActiveKeyExchange, CryptoProvider, SharedSecret, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved, ProtocolVersion};
use tokio_rustls::rustls;

/// The cryptography of every connection. The hybrid group comes first, with X25519 beside it, so a server with either
/// needs no further round trip.
pub(super) fn provider() -> CryptoProvider {
    let mut provider = default_provider();
    provider.kx_groups.insert(0, &Hybrid);
    provider
}

/// The group itself.
#[derive(Debug)]
struct Hybrid;

impl SupportedKxGroup for Hybrid {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let mut seed = Seed::default();
        default_provider().secure_random.fill(&mut seed)?;
        let post_quantum = DecapsulationKey768::from_seed(seed);
        let classical = X25519.start()?;
        let share = [&post_quantum.encapsulation_key().to_bytes(), classical.pub_key()].concat();
        Ok(Box::new(Exchange { post_quantum, classical, share }))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

/// An exchange whose answer the server owes.
struct Exchange {
    post_quantum: DecapsulationKey768,
    classical: Box<dyn ActiveKeyExchange>,
    /// What the server gets: both public keys.
    share: Vec<u8>,
}

impl ActiveKeyExchange for Exchange {
    fn complete(self: Box<Self>, answer: &[u8]) -> Result<SharedSecret, Error> {
        let invalid = || Error::from(PeerMisbehaved::InvalidKeyShare);
        let size = Ciphertext::<MlKem768>::default().len();
        let (ciphertext, public_key) = answer.split_at_checked(size).ok_or_else(invalid)?;
        let post_quantum = self.post_quantum.decapsulate_slice(ciphertext);
        let post_quantum = post_quantum.map_err(|_| invalid())?;
        let classical = self.classical.complete(public_key)?;
        Ok(SharedSecret::from([&post_quantum, classical.secret_bytes()].concat()))
    }

    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        Some((self.classical.group(), self.classical.pub_key()))
    }

    fn complete_hybrid_component(self: Box<Self>, answer: &[u8]) -> Result<SharedSecret, Error> {
        self.classical.complete(answer)
    }

    fn pub_key(&self) -> &[u8] {
        &self.share
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_offered_for_tls_1_3_alone() {
        for (version, usable) in
            [(ProtocolVersion::TLSv1_2, false), (ProtocolVersion::TLSv1_3, true)]
        {
            assert_eq!(Hybrid.usable_for_version(version), usable, "{version:?}");
        }
    }

    #[test]
    fn an_answer_of_another_length_or_without_a_public_key_is_refused() {
        for length in [0, 32, 1_088, 1_119, 1_120, 1_121] {
            let exchange = Hybrid.start().unwrap();
            assert_eq!(exchange.pub_key().len(), 1_184 + 32);
            // A point of zeros has no secret with anybody.
            let refused = exchange.complete(&vec![0; length]).err();
            assert_eq!(refused, Some(PeerMisbehaved::InvalidKeyShare.into()), "{length}");
        }
    }
}
