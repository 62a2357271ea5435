//! TLS of a listener with etcd's settings, from files that are checked for changes at each handshake, or
//! from bytes in memory.
//!
//! Invariant: files that did not change are not read again, and working ones are used until other working
//! ones replace them: a half-written renewal, or a key that does not fit, causes one warning per change
//! and fails no handshake. A client's name is taken from its certificate only after the chain was
//! verified.
//!
//! Of several certificates the one for the client's server name is served: configured names come before
//! those in the certificates, earlier ones before later; the first certificate is the default.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::{aws_lc_rs, CryptoProvider};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ServerConfig, SupportedProtocolVersion};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::server::connection_info::Identity;
use crate::tls::source::{read_certificates, read_crls, Source};
use crate::tls::trust::{ClientAuth, ClientTrust};

const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// A certificate with its chain, its key, and the names it serves.
#[derive(Clone, Debug)]
pub struct Pair {
    pub cert: Source,
    pub key: Source,
    pub names: Vec<String>, // empty: those in it
}

/// The settings, as the flags give them.
#[derive(Clone, Debug)]
pub struct Settings {
    pub pair: Pair,        // the default
    pub others: Vec<Pair>, // chosen by server name
    pub client_auth: ClientAuth,
    pub authorities: Vec<(String, Source)>, // of clients, by name
    pub crl: Option<Source>,
    pub http2: bool,
    pub allowed_names: Vec<String>, // CN of clients; empty: any
    pub allowed_hosts: Vec<String>, // DNS names of clients; empty: any
    pub min_version: String,
    pub max_version: String,
    pub cipher_suites: Vec<String>, // Go's names; empty: all that are safe
}

/// Which states of the files were read: inode, size, and when content and inode were changed.
type Stamp = Vec<Option<(u64, u64, i64, i64, i64, i64)>>;

/// The configuration in use, and the state of the files it was read from.
#[derive(Clone)]
struct Current {
    stamp: Stamp,
    config: Arc<ServerConfig>,
    trust: Arc<ClientTrust>,
}

pub struct Tls {
    settings: Settings,
    versions: Vec<&'static SupportedProtocolVersion>,
    provider: Arc<CryptoProvider>,
    current: RefCell<Option<Current>>,
    failed_stamp: RefCell<Option<Stamp>>, // the last state that could not be used
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
            failed_stamp: RefCell::default(),
        };
        tls.config()?;
        Ok(tls)
    }

    /// Return the configuration of the next handshake, and a warning if the files have become unusable.
    pub fn config(&self) -> Result<(Arc<ServerConfig>, Option<String>), String> {
        let stamp = self.stamp();
        let current = self.current.borrow().clone();
        if let Some(current) = &current {
            if current.stamp == stamp || self.failed_stamp.borrow().as_ref() == Some(&stamp) {
                return Ok((current.config.clone(), None));
            }
        }
        match (self.load(), current) {
            (Ok((config, trust)), _) => {
                let config = Arc::new(config);
                let current = Current { stamp, config: config.clone(), trust };
                *self.current.borrow_mut() = Some(current);
                *self.failed_stamp.borrow_mut() = None;
                Ok((config, None))
            }
            (Err(error), Some(current)) => {
                *self.failed_stamp.borrow_mut() = Some(stamp);
                let warning = format!("TLS files cannot be used, the last good ones are: {error}");
                Ok((current.config, Some(warning)))
            }
            (Err(error), None) => Err(error),
        }
    }

    fn stamp(&self) -> Stamp {
        let settings = &self.settings;
        std::iter::once(&settings.pair)
            .chain(&settings.others)
            .flat_map(|pair| [&pair.cert, &pair.key])
            .chain(settings.authorities.iter().map(|(_, source)| source))
            .chain(&settings.crl)
            .map(|source| {
                let Source::File(path) = source else { return None };
                let found = fs::metadata(path).ok()?;
                let written = (found.mtime(), found.mtime_nsec());
                let changed = (found.ctime(), found.ctime_nsec());
                Some((found.ino(), found.len(), written.0, written.1, changed.0, changed.1))
            })
            .collect()
    }

    fn load(&self) -> Result<(ServerConfig, Arc<ClientTrust>), String> {
        let settings = &self.settings;
        let builder = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&self.versions)
            .map_err(|error| format!("TLS versions and cipher suites: {error}"))?;
        let trust = Arc::new(self.load_trust()?);
        let builder = match settings.client_auth {
            ClientAuth::None => builder.with_no_client_auth(),
            _ => builder.with_client_cert_verifier(trust.clone()),
        };
        let mut names = Names { first: self.load_pair(&settings.pair)?, by_name: HashMap::new() };
        let mut others = Vec::new();
        for pair in &settings.others {
            others.push((pair, self.load_pair(pair)?));
        }
        for (pair, key) in &others {
            names.add(&pair.names, key);
        }
        for (_, key) in others.iter().filter(|(pair, _)| pair.names.is_empty()) {
            names.add(&names_of(&key.cert[0])?, key);
        }
        let mut config = builder.with_cert_resolver(Arc::new(names));
        let protocols = if settings.http2 { &PROTOCOLS[..] } else { &PROTOCOLS[1..] };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok((config, trust))
    }

    fn load_trust(&self) -> Result<ClientTrust, String> {
        let settings = &self.settings;
        let crls = match &settings.crl {
            None => Vec::new(),
            Some(crl) => read_crls(crl)?,
        };
        let mut trust = ClientTrust::new(settings.client_auth, self.provider.clone());
        for (name, source) in &settings.authorities {
            let trusted = read_certificates(source)?;
            trust.add(name, trusted, &crls).map_err(|error| source.describe(&error))?;
        }
        Ok(trust)
    }

    fn load_pair(&self, pair: &Pair) -> Result<Arc<CertifiedKey>, String> {
        let chain = read_certificates(&pair.cert)?;
        let key = PrivateKeyDer::from_pem_slice(&pair.key.read()?)
            .map_err(|error| pair.key.describe(&error))?;
        CertifiedKey::from_der(chain, key, &self.provider)
            .map(Arc::new)
            .map_err(|error| pair.cert.describe(&error))
    }

    /// Verify a client's certificate.
    pub fn identify(&self, chain: Option<&[CertificateDer<'_>]>) -> Identity {
        match (chain, &*self.current.borrow()) {
            (Some(chain), Some(current)) => current.trust.identify(chain, UnixTime::now()),
            _ => Identity::default(),
        }
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

/// Chooses the certificate for a client's server name.
#[derive(Debug)]
struct Names {
    first: Arc<CertifiedKey>,
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

impl Names {
    fn add(&mut self, names: &[String], key: &Arc<CertifiedKey>) {
        for name in names {
            let name = name.to_ascii_lowercase();
            self.by_name.entry(name).or_insert_with(|| key.clone());
        }
    }

    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let name = name.to_ascii_lowercase();
        self.by_name.get(&name).or_else(|| {
            let parent =
                name.split_once('.').map_or("*".to_owned(), |(_, rest)| format!("*.{rest}"));
            self.by_name.get(&parent)
        })
    }
}

impl ResolvesServerCert for Names {
    fn resolve(&self, client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let found = client.server_name().and_then(|name| self.find(name));
        Some(found.unwrap_or(&self.first).clone())
    }
}

/// The names of a certificate: its DNS names, and its common name if that can be one.
fn names_of(certificate: &CertificateDer<'_>) -> Result<Vec<String>, String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| error.to_string())?;
    let mut names = Vec::new();
    let common = common_name(certificate)?;
    if ServerName::try_from(common.trim_start_matches("*."))
        .is_ok_and(|name| matches!(name, ServerName::DnsName(_)))
    {
        names.push(common);
    }
    if let Some(found) = parsed.subject_alternative_name().map_err(|error| error.to_string())? {
        names.extend(found.value.general_names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        }));
    }
    Ok(names)
}

fn common_name(certificate: &CertificateDer<'_>) -> Result<String, String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| error.to_string())?;
    let name = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    Ok(name.unwrap_or_default().to_owned())
}

fn versions(min: &str, max: &str) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let index = |name: &str| match name {
        "TLS1.2" => Ok(0),
        "TLS1.3" => Ok(1),
        other => Err(format!("TLS version {other:?} is not served: TLS1.2 or TLS1.3")),
    };
    let first = if min.is_empty() { 0 } else { index(min)? };
    let last = if max.is_empty() { 1 } else { index(max)? };
    if first > last {
        return Err(format!("the oldest TLS version {min} is above the newest {max}"));
    }
    Ok([&TLS12, &TLS13][first..=last].to_vec())
}

/// The configured suites, in their order. Those of TLS 1.3 stay: etcd's flag is about TLS 1.2.
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
