//! Certificates and revocation lists, in files or in memory.

use std::borrow::Cow;
use std::fs;
use std::path::PathBuf;

use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer};

/// Where PEM is, or DER in the case of a CRL.
#[derive(Clone, Debug)]
pub enum Source {
    File(PathBuf),
    Memory(Vec<u8>),
}

impl Source {
    pub fn read(&self) -> Result<Cow<'_, [u8]>, String> {
        match self {
            Source::File(path) => {
                fs::read(path).map(Cow::Owned).map_err(|error| self.describe(&error))
            }
            Source::Memory(bytes) => Ok(Cow::Borrowed(bytes)),
        }
    }

    pub fn describe(&self, error: &dyn std::fmt::Display) -> String {
        match self {
            Source::File(path) => format!("{}: {error}", path.display()),
            Source::Memory(_) => format!("the PEM given: {error}"),
        }
    }
}

/// Read certificates in PEM; an error if there is none.
pub fn read_certificates(source: &Source) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_slice_iter(&source.read()?).collect::<Result<Vec<_>, _>>();
    let certificates = read.map_err(|error| source.describe(&error))?;
    if certificates.is_empty() {
        return Err(source.describe(&"no certificate in it"));
    }
    Ok(certificates)
}

/// A CRL file is PEM or, as etcd takes it, DER.
pub fn read_crls(source: &Source) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let bytes = source.read()?;
    if !bytes.starts_with(b"-----") {
        return Ok(vec![CertificateRevocationListDer::from(bytes.into_owned())]);
    }
    CertificateRevocationListDer::pem_slice_iter(&bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| source.describe(&error))
}
