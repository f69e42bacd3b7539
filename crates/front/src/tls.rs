//! TLS 1.3 of clients' connections: rustls does the protocol, on buffers; sockets and the clock are the runtime's.
//!
//! A front door does the handshake ([`Tls::handshake`]) while the connection is uninitialized, and begins the session
//! with what that returns. From then on the input decrypts what it reads, and the writer encrypts what it sends.
//! Sessions are not resumed. Randomness is the TLS library's, so what is sent is not the same in each run of the
//! simulator.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use runtime::net::TcpStream;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{Error, RootCertStore, ServerConfig, ServerConnection};

use crate::admission::Uninitialized;

/// Plain bytes that are taken out of the TLS library at once: a record.
const CHUNK_BYTES: usize = 16 << 10;
/// What is read of a handshake at once.
const HANDSHAKE_READ_BYTES: usize = 4 << 10;
/// What a client may send in all before the handshake is done: a chain of certificates, generously.
const HANDSHAKE_BYTES_MAX: usize = 256 << 10;

/// Where certificates and keys are, in PEM form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The certificate of the node, and those that vouch for it.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The certificates that vouch for clients; clients must show a certificate then.
    pub client_trust: Option<PathBuf>,
}

/// A certificate and its key, read and checked, for new connections. Existing connections keep those that they began
/// with. Shared by the shards.
#[derive(Clone, Debug)]
pub struct Tls(Arc<ServerConfig>);

/// The TLS of one connection.
pub struct TlsSession(ServerConnection);

/// The TLS of one connection, for its reader and its writer.
pub type SharedTls = Rc<RefCell<TlsSession>>;

#[derive(Debug)]
struct RuntimeClock;

impl TimeProvider for RuntimeClock {
    fn current_time(&self) -> Option<UnixTime> {
        let us = u64::try_from(runtime::wall_clock_us()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_micros(us)))
    }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |reason: String| format!("cannot use {}: {reason}", path.display());
    let bytes = runtime::fs::read(path).map_err(|e| failed(e.to_string()))?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certificates = read.map_err(|e| failed(format!("not PEM: {e}")))?;
    if certificates.is_empty() {
        return Err(failed("it holds no certificate in PEM form".to_owned()));
    }
    Ok(certificates)
}

impl Tls {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// In words: when a file cannot be read or holds nothing that is expected of it, and when the key is not that of
    /// the certificate.
    pub fn load(files: &TlsFiles) -> Result<Self, String> {
        let certificates = read_certificates(&files.certificate)?;
        let key_error = |reason: String| format!("cannot use {}: {reason}", files.key.display());
        let key = runtime::fs::read(&files.key).map_err(|e| key_error(e.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(&key);
        let key = key.map_err(|e| key_error(format!("no private key in PEM form: {e}")))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_details(provider.clone(), Arc::new(RuntimeClock))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| e.to_string())?;
        let builder = match &files.client_trust {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut trust = RootCertStore::empty();
                for certificate in read_certificates(path)? {
                    let added = trust.add(certificate);
                    added.map_err(|e| format!("cannot use {}: {e}", path.display()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(trust), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|e| e.to_string())?)
            }
        };
        let built = builder
            .with_single_cert(certificates, key)
            .map_err(|error| match error {
                Error::InconsistentKeys(_) => key_error(format!(
                    "it is not the key of the certificate in {}",
                    files.certificate.display()
                )),
                error => error.to_string(),
            });
        let mut config = built?;
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    /// Does the handshake of a connection that was accepted; it has a place while it computes, and none while it waits
    /// for its client. Returns its TLS, and what the client has sent already after the handshake.
    ///
    /// # Errors
    /// When the client ends the connection, or sends what is no handshake. It has received an alert then.
    pub async fn handshake(
        &self,
        stream: &mut TcpStream,
        uninitialized: &Uninitialized,
    ) -> io::Result<(SharedTls, Vec<u8>)> {
        let mut connection = ServerConnection::new(self.0.clone()).map_err(io::Error::other)?;
        connection.set_buffer_limit(None);
        let mut session = TlsSession(connection);
        let (mut plain, mut received_bytes) = (Vec::new(), 0);
        loop {
            let (read, received) = stream.read(Vec::with_capacity(HANDSHAKE_READ_BYTES)).await;
            received_bytes += read?;
            let place = uninitialized.place().await;
            let too_much = received_bytes > HANDSHAKE_BYTES_MAX;
            let opened = if received.is_empty() || too_much {
                Err(io::ErrorKind::UnexpectedEof.into())
            } else {
                session.open(&received, &mut plain)
            };
            let mut reply = Vec::new();
            session.take_pending(&mut reply)?;
            drop(place);
            if !reply.is_empty() {
                stream.write_all(reply).await.0?;
            }
            opened?;
            if !session.0.is_handshaking() {
                return Ok((Rc::new(RefCell::new(session)), plain));
            }
        }
    }
}

impl TlsSession {
    /// Protocol and cipher suite, as lists of clients show them.
    #[must_use]
    pub fn names(&self) -> Option<(String, String)> {
        let protocol = format!("{:?}", self.0.protocol_version()?).replace('_', ".");
        let suite = format!("{:?}", self.0.negotiated_cipher_suite()?.suite());
        Some((protocol, suite.replace("TLS13_", "TLS_")))
    }

    /// Appends what TLS itself has to send.
    fn take_pending(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        while self.0.wants_write() {
            self.0.write_tls(out)?;
        }
        Ok(())
    }

    /// Appends plain bytes, encrypted.
    ///
    /// # Errors
    /// When the session has ended.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.0.writer().write_all(plain)?;
        self.take_pending(out)
    }

    /// Appends the notice that nothing follows.
    pub fn seal_end(&mut self, out: &mut Vec<u8>) {
        self.0.send_close_notify();
        // Writing to a vector does not fail.
        let _ = self.take_pending(out);
    }

    /// Appends the plain bytes of what was received: as many at most, and a record that was not whole before.
    ///
    /// # Errors
    /// When what was received is not TLS, or was changed on its way.
    pub fn open(&mut self, mut received: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        while !received.is_empty() {
            if self.0.read_tls(&mut received)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let state = self.0.process_new_packets().map_err(io::Error::other)?;
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
                return if out.is_empty() {
                    Err(io::ErrorKind::UnexpectedEof.into())
                } else {
                    Ok(())
                };
            }
        }
        Ok(())
    }
}
