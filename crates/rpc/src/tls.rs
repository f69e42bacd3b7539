//! TLS 1.3 over buffers: rustls does the protocol, the runtime's streams carry the bytes.
//!
//! Both ends show a certificate that the other's trusted ones vouch for. Sessions are not resumed: connections between
//! nodes are few and live long. The clock is the runtime's; randomness is that of the TLS library, so the simulator
//! runs without TLS.

use crate::config::TlsFiles;
use crate::error::{Ended, StartError};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error, RootCertStore,
    ServerConfig, ServerConnection, SignatureScheme,
};
use std::io::{Read, Write};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Plain bytes that are taken out of the TLS library at once.
const CHUNK_BYTES: usize = 16 << 10;

/// Certificates and keys, read and checked, for new connections. Existing connections keep those that they began with.
#[derive(Clone, Debug)]
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

#[derive(Debug)]
struct RuntimeClock;

impl TimeProvider for RuntimeClock {
    fn current_time(&self) -> Option<UnixTime> {
        let us = u64::try_from(runtime::wall_clock_us()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_micros(us)))
    }
}

/// Verifies the node that is connected to, but not that the certificate names its address.
#[derive(Debug)]
struct AnyEndpoint(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyEndpoint {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The name is checked last: a certificate that fails the name check has passed all others.
        match self
            .0
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, StartError> {
    let bytes = runtime::fs::read(path).map_err(|e| StartError::TlsFile(path.to_owned(), e.to_string()))?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<_, _>>()
        .map_err(|e| StartError::TlsFile(path.to_owned(), format!("not PEM: {e}")))?;
    if certificates.is_empty() {
        return Err(StartError::TlsFile(
            path.to_owned(),
            "it holds no certificate in PEM form".to_owned(),
        ));
    }
    Ok(certificates)
}

fn verifier_error(error: VerifierBuilderError) -> Error {
    Error::General(error.to_string())
}

impl Tls {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// When a file cannot be read or holds nothing that is expected of it, and when the key is not that of the
    /// certificate.
    pub fn load(files: &TlsFiles) -> Result<Self, StartError> {
        let certificates = read_certificates(&files.certificate)?;
        let key_error = |reason: String| StartError::TlsFile(files.key.clone(), reason);
        let key = runtime::fs::read(&files.key).map_err(|e| key_error(e.to_string()))?;
        let key =
            PrivateKeyDer::from_pem_slice(&key).map_err(|e| key_error(format!("no private key in PEM form: {e}")))?;
        let mut trust = RootCertStore::empty();
        for certificate in read_certificates(&files.trust)? {
            trust
                .add(certificate)
                .map_err(|e| StartError::TlsFile(files.trust.clone(), e.to_string()))?;
        }
        let setup_error = |error: Error| match error {
            Error::InconsistentKeys(_) => key_error(format!(
                "it is not the key of the certificate in {}",
                files.certificate.display()
            )),
            error => StartError::Tls(error.to_string()),
        };
        let (trust, provider) = (Arc::new(trust), Arc::new(rustls::crypto::ring::default_provider()));
        Ok(Self {
            client: Arc::new(
                client_config(
                    &provider,
                    &trust,
                    certificates.clone(),
                    key.clone_key(),
                    files.verify_endpoint,
                )
                .map_err(setup_error)?,
            ),
            server: Arc::new(server_config(&provider, &trust, certificates, key).map_err(setup_error)?),
        })
    }

    /// A session with the node at that address.
    pub(crate) fn connect(&self, address: IpAddr) -> Result<Session, Ended> {
        let name = ServerName::IpAddress(address.into());
        let mut connection = ClientConnection::new(self.client.clone(), name).map_err(tls_error)?;
        connection.set_buffer_limit(None);
        Ok(Session(Connection::Client(connection)))
    }

    /// A session with a node that has connected.
    pub(crate) fn accept(&self) -> Result<Session, Ended> {
        let mut connection = ServerConnection::new(self.server.clone()).map_err(tls_error)?;
        connection.set_buffer_limit(None);
        Ok(Session(Connection::Server(connection)))
    }
}

fn client_config(
    provider: &Arc<CryptoProvider>,
    trust: &Arc<RootCertStore>,
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    verify_endpoint: bool,
) -> Result<ClientConfig, Error> {
    let verifier = WebPkiServerVerifier::builder_with_provider(trust.clone(), provider.clone())
        .build()
        .map_err(verifier_error)?;
    let builder = ClientConfig::builder_with_details(provider.clone(), Arc::new(RuntimeClock))
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    let builder = if verify_endpoint {
        builder.with_webpki_verifier(verifier)
    } else {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyEndpoint(verifier)))
    };
    let mut config = builder.with_client_auth_cert(certificates, key)?;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

fn server_config(
    provider: &Arc<CryptoProvider>,
    trust: &Arc<RootCertStore>,
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, Error> {
    let verifier = WebPkiClientVerifier::builder_with_provider(trust.clone(), provider.clone())
        .build()
        .map_err(verifier_error)?;
    let mut config = ServerConfig::builder_with_details(provider.clone(), Arc::new(RuntimeClock))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates, key)?;
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn tls_error(error: Error) -> Ended {
    Ended::Tls(error.to_string())
}

/// One connection's TLS.
pub(crate) struct Session(Connection);

impl Session {
    pub(crate) fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.0.wants_write()
    }

    /// Appends what has to be sent: the plain bytes, encrypted, and whatever TLS has to say itself.
    pub(crate) fn encrypt(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Ended> {
        self.0.writer().write_all(plain)?;
        while self.0.wants_write() {
            self.0.write_tls(out)?;
        }
        Ok(())
    }

    /// Appends the plain bytes of what was received. After an error there may be an alert to send.
    pub(crate) fn decrypt(&mut self, mut received: &[u8], out: &mut Vec<u8>) -> Result<(), Ended> {
        while !received.is_empty() {
            if self.0.read_tls(&mut received)? == 0 {
                return Err(Ended::Closed);
            }
            let state = self.0.process_new_packets().map_err(tls_error)?;
            let mut available = state.plaintext_bytes_to_read();
            while available > 0 {
                let (begin, chunk) = (out.len(), available.min(CHUNK_BYTES));
                out.resize(begin + chunk, 0);
                let read = self.0.reader().read(&mut out[begin..])?;
                out.truncate(begin + read);
                if read == 0 {
                    break;
                }
                available -= read;
            }
            if state.peer_has_closed() {
                break;
            }
        }
        Ok(())
    }
}
