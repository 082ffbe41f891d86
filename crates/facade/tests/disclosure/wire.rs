//! Calls byte by byte, and all that is answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use mainspring::api::Bytes;
use prost::Message as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::{Service as _, ServiceExt as _};

use crate::people::Certified;

/// Connects over TLS, with a certificate of the client's or without one.
pub(crate) async fn connect(
    address: &str,
    ca: &str,
    client: Option<&Certified>,
) -> Result<Channel, tonic::transport::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match client {
        None => builder.with_no_client_auth(),
        Some(Certified { certificate, key }) => {
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (config, to) = (Arc::new(config), address.to_owned());
    let connector = tower::service_fn(move |_: Uri| {
        let (config, to) = (Arc::clone(&config), to.clone());
        async move {
            let stream = TcpStream::connect(&to).await?;
            stream.set_nodelay(true)?;
            let name = "127.0.0.1".try_into().unwrap();
            let stream = TlsConnector::from(config).connect(name, stream).await?;
            Ok::<_, std::io::Error>(TokioIo::new(stream))
        }
    });
    let endpoint = Endpoint::from_shared(format!("https://{address}")).unwrap();
    endpoint.connect_with_connector(connector).await
}

/// All of an answer that a client can see, but its time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Answer {
    status: u16,
    headers: BTreeMap<String, Vec<String>>,
    /// Of a stream only the first message.
    pub(crate) body: Vec<u8>,
    trailers: BTreeMap<String, Vec<String>>,
}

fn seen(headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers.iter().filter(|(name, _)| *name != http::header::DATE) {
        let value = match name.as_str() {
            "grpc-status-details-bin" => details(value.as_bytes()),
            _ => String::from_utf8_lossy(value.as_bytes()).into_owned(),
        };
        seen.entry(name.to_string()).or_default().push(value);
    }
    seen
}

/// The details in words: the order of a map means nothing.
fn details(value: &[u8]) -> String {
    let bytes = STANDARD_NO_PAD.decode(value).or_else(|_| STANDARD.decode(value)).unwrap();
    let status = tonic_types::pb::Status::decode(&bytes[..]).unwrap();
    let words = status.details.iter().map(|any| {
        let info = tonic_types::pb::ErrorInfo::decode(&any.value[..]).unwrap();
        let metadata: BTreeMap<_, _> = info.metadata.into_iter().collect();
        format!("{}: {} {} {metadata:?}", any.type_url, info.domain, info.reason)
    });
    let words: Vec<_> = words.collect();
    format!("{} {:?} {words:?}", status.code, status.message)
}

impl Answer {
    fn trailer(&self, name: &str) -> Option<&str> {
        let found = self.trailers.get(name).or_else(|| self.headers.get(name))?;
        Some(&found[0])
    }

    /// The gRPC code; `None` when the first message came without an end.
    pub(crate) fn code(&self) -> Option<tonic::Code> {
        let text = self.trailer("grpc-status")?;
        Some(tonic::Code::from_bytes(text.as_bytes()))
    }

    /// The text as it is sent, escapes included.
    pub(crate) fn text(&self) -> &str {
        self.trailer("grpc-message").unwrap_or_default()
    }

    pub(crate) fn is_ok(&self) -> bool {
        self.code().is_none_or(|code| code == tonic::Code::Ok)
    }

    /// The first message of the answer.
    pub(crate) fn message<T: prost::Message + Default>(&self) -> T {
        T::decode(self.body.get(5..).unwrap_or_else(|| panic!("{self:?}"))).unwrap()
    }

    /// The same with the session that was asked for taken out.
    pub(crate) fn without(&self, uid: &str) -> Self {
        let clean = |map: &BTreeMap<String, Vec<String>>| {
            let mut map = map.clone();
            for value in map.values_mut().flatten() {
                *value = value.replace(uid, "UID");
            }
            map
        };
        Self { headers: clean(&self.headers), trailers: clean(&self.trailers), ..self.clone() }
    }
}

/// A message in its frame.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// Calls `path` with this body, and waits for the end, or for the first
/// message when `is_stream`.
pub(crate) async fn call(
    channel: &Channel,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
    is_stream: bool,
) -> Result<Answer, tonic::transport::Error> {
    let mut request =
        Request::post(path).header("content-type", "application/grpc").header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::new(Full::new(Bytes::from(body)))).unwrap();
    let mut channel = channel.clone();
    let response = channel.ready().await?.call(request).await?;
    let mut answer = Answer {
        status: response.status().as_u16(),
        headers: seen(response.headers()),
        ..Answer::default()
    };
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        match frame.expect("the stream is not cut").into_data() {
            Ok(data) => {
                answer.body.extend_from_slice(&data);
                if is_stream && is_whole(&answer.body) {
                    return Ok(answer);
                }
            }
            Err(frame) => answer.trailers = seen(&frame.into_trailers().unwrap()),
        }
    }
    Ok(answer)
}

/// Whether a whole message came.
fn is_whole(body: &[u8]) -> bool {
    body.get(1..5).is_some_and(|length| {
        let length = u32::from_be_bytes(length.try_into().unwrap());
        body.len() >= usize::try_from(length).unwrap() + 5
    })
}
