//! TLS from files: who signs servers, and perhaps a certificate of one's own.

use std::net::IpAddr;
use std::sync::Arc;

use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::options::Options;
use crate::Fault;

/// Return how to connect; None without --ca.
pub fn connector(options: &Options) -> Result<Option<TlsConnector>, Fault> {
    let Some(ca) = options.optional("ca") else { return Ok(None) };
    let mut roots = RootCertStore::empty();
    for each in CertificateDer::pem_file_iter(ca)? {
        roots.add(each?)?;
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    let mut config = match options.optional("cert") {
        None => config.with_no_client_auth(),
        Some(file) => {
            let chain = CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>()?;
            let key = PrivateKeyDer::from_pem_file(options.text("key")?)?;
            config.with_client_auth_cert(chain, key)?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Some(TlsConnector::from(Arc::new(config))))
}

/// Return the name that the certificate of HOST:PORT must bear.
pub fn name_of(endpoint: &str) -> Result<ServerName<'static>, Fault> {
    let host = endpoint.rsplit_once(':').ok_or_else(|| format!("{endpoint}: not HOST:PORT"))?.0;
    match host.parse::<IpAddr>() {
        Ok(address) => Ok(ServerName::IpAddress(address.into())),
        Err(_) => Ok(ServerName::try_from(host.to_owned())?),
    }
}
