//! TLS of a client: trusted authorities and its certificate, from files checked at each dial.
//!
//! Invariant: files that did not change are not read again. Files that cannot be read fail that dial; a
//! client does not keep using old ones, because the server has changed, too.
//!
//! Servers are verified by rustls, with one addition as in Go: a certificate that is itself among the
//! trusted ones is its own chain, also when it is marked as an authority. Then its validity, usage and
//! names are checked here, and the handshake's signature as always.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{verify_server_name, WebPkiServerVerifier};
use tokio_rustls::rustls::crypto::{
    aws_lc_rs, verify_tls12_signature, verify_tls13_signature, CryptoProvider,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, InconsistentKeys, RootCertStore,
    SignatureScheme,
};
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

use crate::tls::source::{read_certificates, Source};

const PROTOCOL: &[u8] = b"h2";

/// The settings, as the options give them.
#[derive(Clone, Debug)]
pub struct Settings {
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub ca: Vec<PathBuf>, // the first file that exists is used
    pub is_unverified: bool,
    pub server_name: Option<String>, // instead of the endpoint's host
}

/// Which states of the files were read: inode, size, and when content and inode were changed.
type Stamp = Vec<Option<(u64, u64, i64, i64, i64, i64)>>;

pub struct Tls {
    pub settings: Settings,
    provider: Arc<CryptoProvider>,
    current: RefCell<Option<(Stamp, Arc<ClientConfig>)>>,
}

impl Tls {
    pub fn new(settings: Settings) -> Self {
        let provider = Arc::new(aws_lc_rs::default_provider());
        Tls { settings, provider, current: RefCell::default() }
    }

    /// Return the configuration of the next dial.
    pub fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let stamp = self.stamp();
        if let Some((of, config)) = &*self.current.borrow() {
            if *of == stamp {
                return Ok(config.clone());
            }
        }
        let config = Arc::new(self.load()?);
        *self.current.borrow_mut() = Some((stamp, config.clone()));
        Ok(config)
    }

    fn stamp(&self) -> Stamp {
        let Settings { cert, key, ca, .. } = &self.settings;
        cert.iter()
            .chain(key)
            .chain(ca)
            .map(|path| {
                let found = fs::metadata(path).ok()?;
                let written = (found.mtime(), found.mtime_nsec());
                let changed = (found.ctime(), found.ctime_nsec());
                Some((found.ino(), found.len(), written.0, written.1, changed.0, changed.1))
            })
            .collect()
    }

    fn load(&self) -> Result<ClientConfig, String> {
        let builder = ClientConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(self.verifier()?);
        let mut config = match (&self.settings.cert, &self.settings.key) {
            (Some(cert), Some(key)) => {
                let shown = Arc::new(SingleCertAndKey::from(self.pair(cert, key)?));
                builder.with_client_cert_resolver(shown)
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(config)
    }

    /// The client's certificate, of any version of X.509: the server verifies it.
    fn pair(&self, cert: &Path, key_file: &Path) -> Result<CertifiedKey, String> {
        let chain = read_certificates(&Source::File(cert.into()))?;
        let key =
            PrivateKeyDer::from_pem_file(key_file).map_err(|error| in_file(key_file, &error))?;
        let key = self
            .provider
            .key_provider
            .load_private_key(key)
            .map_err(|error| in_file(key_file, &error))?;
        let pair = CertifiedKey::new(chain, key);
        match pair.keys_match() {
            Err(error @ Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                Err(in_file(key_file, &error))
            }
            _ => Ok(pair),
        }
    }

    fn verifier(&self) -> Result<Arc<dyn ServerCertVerifier>, String> {
        let provider = self.provider.clone();
        if self.settings.is_unverified {
            return Ok(Arc::new(Unverified { provider }));
        }
        let there = self.settings.ca.iter().find(|path| path.exists());
        let Some(file) = there.or(self.settings.ca.first()) else {
            return Err("no file of trusted certificates is known".into());
        };
        let certificates = read_certificates(&Source::File(file.clone()))?;
        let trusted = certificates.iter().cloned().collect();
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(certificates);
        if added == 0 {
            return Err(in_file(file, &"no certificate in it can be used"));
        }
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|error| in_file(file, &error))?;
        Ok(Arc::new(GoVerifier { webpki, trusted }))
    }
}

fn in_file(path: &Path, error: &dyn std::fmt::Display) -> String {
    Source::File(path.into()).describe(error)
}

/// rustls's verifier, with a trusted certificate as its own chain.
#[derive(Debug)]
struct GoVerifier {
    webpki: Arc<WebPkiServerVerifier>,
    trusted: HashSet<CertificateDer<'static>>,
}

impl ServerCertVerifier for GoVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = self.webpki.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match found {
            Err(_) if self.trusted.contains(end_entity) => {
                verify_trusted(end_entity, server_name, now)
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
        self.webpki.verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Check a certificate that is itself trusted: its validity, usage and names.
fn verify_trusted(
    certificate: &CertificateDer<'_>,
    server_name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, Error> {
    let refused = |error| Err(Error::InvalidCertificate(error));
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return refused(CertificateError::BadEncoding);
    };
    let now = i64::try_from(now.as_secs()).ok().and_then(|at| ASN1Time::from_timestamp(at).ok());
    match now {
        Some(now) if now < parsed.validity().not_before => {
            return refused(CertificateError::NotValidYet)
        }
        Some(now) if now <= parsed.validity().not_after => {}
        _ => return refused(CertificateError::Expired),
    }
    let Ok(use_of_key) = parsed.extended_key_usage() else {
        return refused(CertificateError::BadEncoding);
    };
    if use_of_key.is_some_and(|found| !found.value.server_auth && !found.value.any) {
        return refused(CertificateError::InvalidPurpose);
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, server_name)?;
    Ok(ServerCertVerified::assertion())
}

/// Verifies only that the server has the key of its certificate.
#[derive(Debug)]
struct Unverified {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
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
