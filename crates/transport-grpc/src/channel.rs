//! Channels to a peer.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Error, Uri};

use crate::address::PeerAddress;
use crate::options::LinkOptions;

/// Bytes of one stream that a client buffers before its peer must wait.
///
/// A peer that sends many small frames faster than they are recorded must run
/// into this window, and not into the HTTP/2 library's budget for the overhead
/// of small frames, which ends the whole connection. That budget is half of
/// the connection's window at about 250 bytes a frame, and a frame of ours has
/// at least some 30 bytes: 512 KiB of them cost 4 MiB of a budget of 8.
const CLIENT_STREAM_WINDOW: u32 = 512 << 10;

/// Bytes of all streams of a connection, on both sides.
pub(crate) const CONNECTION_WINDOW: u32 = 16 << 20;

/// What a server buffers of one stream: a start frame of many megabytes should
/// not wait for small windows, and the frames after it come one at a time.
pub(crate) const SERVER_STREAM_WINDOW: u32 = 4 << 20;

fn configured(
    endpoint: Endpoint,
    options: &LinkOptions,
    keep_alive_interval: Option<Duration>,
) -> Endpoint {
    let endpoint = endpoint
        .connect_timeout(options.connect_timeout)
        .keep_alive_timeout(options.keep_alive_timeout)
        .initial_stream_window_size(CLIENT_STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    match keep_alive_interval {
        Some(interval) => endpoint.http2_keep_alive_interval(interval).keep_alive_while_idle(true),
        None => endpoint,
    }
}

/// Makes a channel that connects when it is first used. Must be called within
/// a runtime.
pub(crate) type Dial = Arc<dyn Fn() -> Channel + Send + Sync>;

/// Connects, and connects again by itself when the connection is lost.
pub(crate) async fn connect(
    address: &PeerAddress,
    options: &LinkOptions,
    keep_alive_interval: Option<Duration>,
) -> Result<(Channel, Dial), Error> {
    match address {
        PeerAddress::Tcp(authority) => {
            let endpoint = Endpoint::from_shared(format!("http://{authority}"))?;
            let endpoint = configured(endpoint, options, keep_alive_interval);
            let channel = endpoint.connect().await?;
            Ok((channel, Arc::new(move || endpoint.connect_lazy())))
        }
        PeerAddress::Unix(path) => {
            // The uri is only what the requests name as their authority.
            let endpoint =
                configured(Endpoint::from_static("http://localhost"), options, keep_alive_interval);
            connect_with(endpoint, unix_connector(path.clone())).await
        }
    }
}

/// As [`connect`], over connections that `connector` secures.
pub(crate) async fn connect_tls<C>(
    authority: &str,
    connector: C,
    options: &LinkOptions,
) -> Result<(Channel, Dial), Error>
where
    C: tower::Service<Uri, Response = TokioIo<TlsStream<TcpStream>>, Error = std::io::Error>
        + Clone
        + Send
        + Sync
        + 'static,
    C::Future: Send,
{
    let endpoint = Endpoint::from_shared(format!("https://{authority}"))?;
    connect_with(configured(endpoint, options, options.keep_alive_interval), connector).await
}

async fn connect_with<C, I>(endpoint: Endpoint, connector: C) -> Result<(Channel, Dial), Error>
where
    C: tower::Service<Uri, Response = TokioIo<I>, Error = std::io::Error>
        + Clone
        + Send
        + Sync
        + 'static,
    C::Future: Send,
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let channel = endpoint.connect_with_connector(connector.clone()).await?;
    Ok((channel, Arc::new(move || endpoint.connect_with_connector_lazy(connector.clone()))))
}

fn unix_connector(
    path: PathBuf,
) -> impl tower::Service<Uri, Response = TokioIo<UnixStream>, Error = std::io::Error, Future: Send>
+ Clone
+ Send
+ Sync {
    tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    })
}
