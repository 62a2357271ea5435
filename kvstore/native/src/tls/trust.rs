//! Verification of clients' certificates, as in Go's TLS.
//!
//! ```text
//! handshake ──► ClientTrust (may refuse)      afterwards ──► identify ──► authorities, or an error
//! ```
//!
//! Invariant: a certificate is verified by an authority if a chain leads to one of its certificates, or
//! if it is itself one of them, byte for byte, and not expired: many clusters use a self-signed
//! certificate that is marked as an authority, which webpki refuses as an end entity.
//!
//! Go takes certificates of version 1, as `openssl x509 -req` makes them; webpki reads none. Where all
//! verification is left for afterwards, the handshake over TLS 1.3 proves that the client has the key.

use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{
    verify_tls12_signature, verify_tls13_signature, verify_tls13_signature_with_raw_key,
    CryptoProvider,
};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, SubjectPublicKeyInfoDer, UnixTime,
};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate, X509Version};

use crate::server::connection_info::Identity;

/// The required client certificates; the names are Go's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    None,
    /// Accept any certificate, or none; it is verified afterwards.
    Request,
    VerifyIfGiven,
    RequireAndVerify,
}

/// Verify a certificate that is itself one of the trusted; none for any other.
fn verify_trusted_certificate(
    trusted: &[CertificateDer<'_>],
    crls: &[CertificateRevocationListDer<'_>],
    certificate: &CertificateDer<'_>,
    now: UnixTime,
) -> Option<Result<(), CertificateError>> {
    if !trusted.contains(certificate) {
        return None;
    }
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return Some(Err(CertificateError::BadEncoding));
    };
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let is_for_clients = match parsed.extended_key_usage() {
        Ok(None) => true,
        Ok(Some(extension)) => extension.value.any || extension.value.client_auth,
        Err(_) => false,
    };
    Some(match parsed.validity() {
        validity if validity.not_before.timestamp() > seconds => Err(CertificateError::NotValidYet),
        validity if validity.not_after.timestamp() < seconds => Err(CertificateError::Expired),
        _ if is_revoked(&parsed, crls) => Err(CertificateError::Revoked),
        _ if !is_for_clients => Err(CertificateError::InvalidPurpose),
        _ => Ok(()),
    })
}

/// Return whether issuer and subject of a certificate are the same.
fn is_own_issuer(certificate: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(certificate)
        .is_ok_and(|(_, parsed)| parsed.subject().as_raw() == parsed.issuer().as_raw())
}

/// Return the key of a certificate of version 1; none for any other.
fn key_of_version_1(certificate: &CertificateDer<'_>) -> Option<SubjectPublicKeyInfoDer<'static>> {
    match X509Certificate::from_der(certificate) {
        Ok((_, parsed)) if parsed.version() == X509Version::V1 => {
            Some(SubjectPublicKeyInfoDer::from(parsed.public_key().raw.to_vec()))
        }
        _ => None,
    }
}

fn is_revoked(
    certificate: &X509Certificate<'_>,
    crls: &[CertificateRevocationListDer<'_>],
) -> bool {
    crls.iter().any(|crl| match CertificateRevocationList::from_der(crl) {
        Ok((_, list)) => list
            .iter_revoked_certificates()
            .any(|revoked| revoked.raw_serial() == certificate.raw_serial()),
        Err(_) => true, // webpki has read it, so this does not happen
    })
}

/// A named set of trusted certificates.
#[derive(Debug)]
struct Authority {
    name: String,
    chains: Arc<dyn ClientCertVerifier>,
    trusted: Vec<CertificateDer<'static>>,
    crls: Vec<CertificateRevocationListDer<'static>>,
}

impl Authority {
    fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let Some((own, intermediates)) = chain.split_first() else {
            return Err(Error::NoCertificatesPresented);
        };
        let Err(error) = self.chains.verify_client_cert(own, intermediates, now) else {
            return Ok(());
        };
        match (verify_trusted_certificate(&self.trusted, &self.crls, own, now), &error) {
            (Some(judged), _) => judged.map_err(Error::InvalidCertificate),
            // webpki's only error is that it is an authority; but it is not trusted.
            (None, Error::InvalidCertificate(CertificateError::Other(_))) if is_own_issuer(own) => {
                Err(UNKNOWN)
            }
            (None, _) => Err(error),
        }
    }
}

/// The authorities of a port.
pub struct ClientTrust {
    auth: ClientAuth,
    authorities: Vec<Authority>,
    hints: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for ClientTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTrust").field("auth", &self.auth).finish_non_exhaustive()
    }
}

impl ClientTrust {
    pub fn new(auth: ClientAuth, provider: Arc<CryptoProvider>) -> Self {
        ClientTrust { auth, authorities: Vec::new(), hints: Vec::new(), provider }
    }

    /// Trust these certificates, too.
    pub fn add(
        &mut self,
        name: &str,
        trusted: Vec<CertificateDer<'static>>,
        crls: &[CertificateRevocationListDer<'static>],
    ) -> Result<(), String> {
        let mut roots = RootCertStore::empty();
        for certificate in &trusted {
            roots.add(certificate.clone()).map_err(|error| error.to_string())?;
        }
        let provider = self.provider.clone();
        let chains = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .with_crls(crls.iter().cloned())
            .allow_unknown_revocation_status()
            .build()
            .map_err(|error| error.to_string())?;
        self.hints.extend_from_slice(chains.root_hint_subjects());
        self.authorities.push(Authority {
            name: name.to_owned(),
            chains,
            trusted,
            crls: crls.to_vec(),
        });
        Ok(())
    }

    /// Return the authorities that verify a chain, or the error.
    pub fn identify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Identity {
        let (mut verified_by, mut refused) = (Vec::new(), None);
        for authority in &self.authorities {
            match authority.verify(chain, now) {
                Ok(()) => verified_by.push(authority.name.clone()),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        let error = match verified_by.is_empty() {
            true => Some(refused.unwrap_or(UNKNOWN).to_string()),
            false => None,
        };
        Identity { chain: chain.iter().map(|each| each.to_vec()).collect(), verified_by, error }
    }
}

const UNKNOWN: Error = Error::InvalidCertificate(CertificateError::UnknownIssuer);

impl ClientCertVerifier for ClientTrust {
    fn client_auth_mandatory(&self) -> bool {
        self.auth == ClientAuth::RequireAndVerify
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.auth == ClientAuth::Request {
            return Ok(ClientCertVerified::assertion());
        }
        let chain: Vec<_> = std::iter::once(end_entity).chain(intermediates).cloned().collect();
        let mut refused = None;
        for authority in &self.authorities {
            match authority.verify(&chain, now) {
                Ok(()) => return Ok(ClientCertVerified::assertion()),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(refused.unwrap_or(UNKNOWN))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        if self.auth == ClientAuth::Request {
            if let Some(key) = key_of_version_1(certificate) {
                return verify_tls13_signature_with_raw_key(message, &key, signature, algorithms);
            }
        }
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
