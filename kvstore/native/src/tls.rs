//! TLS of a listener: what etcd's flags say, from files that are looked at again for each handshake.
//!
//! Law: files that did not change are not read again, and what was right once is served until something
//! right takes its place: a renewal that is half written, or a key that does not fit, costs a warning
//! per change and no handshake. A client's name is taken from its certificate only after the chain was
//! verified.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::{aws_lc_rs, CryptoProvider};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName,
};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use x509_parser::prelude::{FromDer, X509Certificate};

const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The settings, as the flags give them.
#[derive(Clone, Debug)]
pub struct Settings {
    pub cert: PathBuf,
    pub key: PathBuf,
    pub ca: Option<PathBuf>, // given: clients must have a certificate of it
    pub crl: Option<PathBuf>,
    pub allowed_names: Vec<String>, // CN of clients; empty: any
    pub allowed_hosts: Vec<String>, // DNS names of clients; empty: any
    pub min_version: String,
    pub max_version: String,
    pub cipher_suites: Vec<String>, // Go's names; empty: all that are safe
}

/// Which states of the files were read: inode, size, and when content and inode were changed.
type Stamp = Vec<Option<(u64, u64, i64, i64, i64, i64)>>;

pub struct Tls {
    settings: Settings,
    versions: Vec<&'static SupportedProtocolVersion>,
    provider: Arc<CryptoProvider>,
    current: RefCell<Option<(Stamp, Arc<ServerConfig>)>>,
    wrong: RefCell<Option<Stamp>>, // the last state that could not be used
}

impl Tls {
    /// Check the settings and read the files once.
    pub fn new(settings: Settings) -> Result<Self, String> {
        let versions = versions(&settings.min_version, &settings.max_version)?;
        let provider = provider(&settings.cipher_suites)?;
        let tls = Tls {
            settings,
            versions,
            provider: Arc::new(provider),
            current: RefCell::default(),
            wrong: RefCell::default(),
        };
        tls.config()?;
        Ok(tls)
    }

    /// Return what the next handshake is to use, and what is newly wrong with the files.
    pub fn config(&self) -> Result<(Arc<ServerConfig>, Option<String>), String> {
        let stamp = self.stamp();
        let current = self.current.borrow().clone();
        if let Some((of, config)) = &current {
            if *of == stamp || self.wrong.borrow().as_ref() == Some(&stamp) {
                return Ok((config.clone(), None));
            }
        }
        match (self.load(), current) {
            (Ok(config), _) => {
                let config = Arc::new(config);
                *self.current.borrow_mut() = Some((stamp, config.clone()));
                *self.wrong.borrow_mut() = None;
                Ok((config, None))
            }
            (Err(error), Some((_, config))) => {
                *self.wrong.borrow_mut() = Some(stamp);
                let warning = format!("TLS files cannot be used, the last good ones are: {error}");
                Ok((config, Some(warning)))
            }
            (Err(error), None) => Err(error),
        }
    }

    fn stamp(&self) -> Stamp {
        let settings = &self.settings;
        [Some(&settings.cert), Some(&settings.key), settings.ca.as_ref(), settings.crl.as_ref()]
            .into_iter()
            .flatten()
            .map(|path| {
                let found = fs::metadata(path).ok()?;
                let written = (found.mtime(), found.mtime_nsec());
                let changed = (found.ctime(), found.ctime_nsec());
                Some((found.ino(), found.len(), written.0, written.1, changed.0, changed.1))
            })
            .collect()
    }

    fn load(&self) -> Result<ServerConfig, String> {
        let settings = &self.settings;
        let builder = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&self.versions)
            .map_err(|error| format!("TLS versions and cipher suites: {error}"))?;
        let builder = match &settings.ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                for certificate in read_certificates(ca)? {
                    roots.add(certificate).map_err(|error| in_file(ca, &error))?;
                }
                let crls = match &settings.crl {
                    None => Vec::new(),
                    Some(crl) => read_crls(crl)?,
                };
                let verifier = WebPkiClientVerifier::builder_with_provider(
                    Arc::new(roots),
                    self.provider.clone(),
                )
                .with_crls(crls)
                .allow_unknown_revocation_status()
                .build()
                .map_err(|error| in_file(ca, &error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let chain = read_certificates(&settings.cert)?;
        let key = PrivateKeyDer::from_pem_file(&settings.key)
            .map_err(|error| in_file(&settings.key, &error))?;
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| in_file(&settings.cert, &error))?;
        config.alpn_protocols = PROTOCOLS.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }

    /// Check a verified client's certificate against the allowed names; return its CN.
    pub fn admit(&self, chain: Option<&[CertificateDer<'_>]>) -> Result<Option<String>, String> {
        let Some(certificate) = chain.and_then(<[_]>::first) else { return Ok(None) };
        let name = common_name(certificate)?;
        let names = &self.settings.allowed_names;
        if !names.is_empty() && !names.contains(&name) {
            return Err(format!("client certificate authentication failed: CN {name:?}"));
        }
        if !self.settings.allowed_hosts.is_empty() {
            let parsed = ParsedCertificate::try_from(certificate).map_err(|e| e.to_string())?;
            let is_allowed = self.settings.allowed_hosts.iter().any(|host| {
                ServerName::try_from(host.as_str())
                    .is_ok_and(|host| verify_server_name(&parsed, &host).is_ok())
            });
            if !is_allowed {
                return Err("client certificate authentication failed: host name".into());
            }
        }
        Ok(Some(name))
    }
}

fn in_file(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| in_file(path, &error))?;
    if certificates.is_empty() {
        return Err(in_file(path, &"no certificate in it"));
    }
    Ok(certificates)
}

/// A CRL file is PEM or, as etcd takes it, DER.
fn read_crls(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let bytes = fs::read(path).map_err(|error| in_file(path, &error))?;
    if !bytes.starts_with(b"-----") {
        return Ok(vec![CertificateRevocationListDer::from(bytes)]);
    }
    CertificateRevocationListDer::pem_slice_iter(&bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| in_file(path, &error))
}

fn common_name(certificate: &CertificateDer<'_>) -> Result<String, String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| error.to_string())?;
    let name = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    Ok(name.unwrap_or_default().to_owned())
}

fn versions(min: &str, max: &str) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let place = |name: &str| match name {
        "TLS1.2" => Ok(0),
        "TLS1.3" => Ok(1),
        other => Err(format!("TLS version {other:?} is not served: TLS1.2 or TLS1.3")),
    };
    let first = if min.is_empty() { 0 } else { place(min)? };
    let last = if max.is_empty() { 1 } else { place(max)? };
    if first > last {
        return Err(format!("the oldest TLS version {min} is above the newest {max}"));
    }
    Ok([&TLS12, &TLS13][first..=last].to_vec())
}

/// The suites asked for, in their order. Those of TLS 1.3 stay: etcd's flag is about TLS 1.2.
fn provider(names: &[String]) -> Result<CryptoProvider, String> {
    let mut provider = aws_lc_rs::default_provider();
    if names.is_empty() {
        return Ok(provider);
    }
    let go_name = |suite: &tokio_rustls::rustls::SupportedCipherSuite| {
        format!("{:?}", suite.suite()).replace("TLS13_", "TLS_")
    };
    let mut chosen = Vec::new();
    for name in names {
        // Go writes ..._POLY1305 with and without the hash's name.
        let found = provider.cipher_suites.iter().find(|suite| {
            let known = go_name(suite);
            known == *name || known.strip_suffix("_SHA256") == Some(name)
        });
        chosen.push(*found.ok_or_else(|| format!("cipher suite {name:?} is not served"))?);
    }
    let modern = |suite: &tokio_rustls::rustls::SupportedCipherSuite| suite.tls13().is_some();
    let missing: Vec<_> = provider
        .cipher_suites
        .iter()
        .filter(|suite| modern(suite) && !chosen.contains(suite))
        .copied()
        .collect();
    chosen.extend(missing);
    provider.cipher_suites = chosen;
    Ok(provider)
}
