//! Connections of a client to a host: plain or TLS, with or without a token.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response};
use mainspring_api::{BoxFuture, Condition, Secret, SessionsError, async_trait};
use tonic::body::Body;
use tonic::transport::Channel;
use tower::Service;

use crate::address::{PeerAddress, Scheme};
use crate::channel::Dial;
use crate::heartbeat::{HEARTBEAT_DEFAULT, HEARTBEAT_MAX};
use crate::options::LinkOptions;
use crate::status::to_status;
use crate::tls::ClientTls;

/// How long a [`TokenSource`] may take for one call.
pub const TOKEN_MAX: Duration = Duration::from_secs(10);

/// Where the bearer token of a call comes from.
///
/// It is asked before every call, so that a token which is about to expire can
/// be replaced: caching is the source's matter.
#[async_trait]
pub trait TokenSource: fmt::Debug + Send + Sync + 'static {
    /// A token that holds now.
    ///
    /// # Errors
    /// Any: the call is not made, and fails with it.
    async fn token(&self) -> Result<Secret, SessionsError>;
}

/// A token that never changes.
#[async_trait]
impl TokenSource for Secret {
    async fn token(&self) -> Result<Secret, SessionsError> {
        Ok(self.clone())
    }
}

/// How to connect to a host.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// Bounds and intervals of the connection.
    pub link: LinkOptions,
    /// TLS. An address `https://host:port` asks for it too, then with the
    /// machine's own roots.
    pub tls: Option<ClientTls>,
    /// What goes on every call as `authorization: Bearer`. Never over plain TCP
    /// to another machine: such an address is refused.
    pub bearer: Option<Arc<dyn TokenSource>>,
    /// How often the host is to give a sign of life on streams, in whole
    /// seconds up to 3600; `None` asks for none. Default 15 s. A stream of a
    /// host that agreed, and is silent for three times as long, is lost.
    pub heartbeat: Option<Duration>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            link: LinkOptions::default(),
            tls: None,
            bearer: None,
            heartbeat: Some(HEARTBEAT_DEFAULT),
        }
    }
}

impl From<&LinkOptions> for ConnectOptions {
    fn from(link: &LinkOptions) -> Self {
        Self { link: link.clone(), ..Self::default() }
    }
}

impl From<&Self> for ConnectOptions {
    fn from(options: &Self) -> Self {
        options.clone()
    }
}

/// The connection to a host. One that was found silent is replaced: what is
/// tried again would otherwise wait on it until a ping has failed, too.
pub(crate) struct Line {
    /// `None` when somebody else made the channel.
    dial: Option<Dial>,
    current: Mutex<Dialed>,
}

#[derive(Debug, Clone)]
struct Dialed {
    channel: Channel,
    /// How many there were before.
    number: u64,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("current", &self.current).finish_non_exhaustive()
    }
}

impl Line {
    fn current(&self) -> std::sync::MutexGuard<'_, Dialed> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection that a call which begins now is made over.
    pub(crate) fn used(self: &Arc<Self>) -> Used {
        Used { line: Arc::clone(self), number: self.current().number }
    }
}

/// The connection that a call was made over.
#[derive(Debug, Clone)]
pub(crate) struct Used {
    line: Arc<Line>,
    number: u64,
}

impl Used {
    /// It was silent for too long: later calls are made over a new one. Calls
    /// that it still carries are left to find out for themselves.
    pub(crate) fn is_silent(&self) {
        let mut current = self.line.current();
        let Some(dial) = self.line.dial.as_ref().filter(|_| current.number == self.number) else {
            return;
        };
        tracing::debug!("a silent connection is left for a new one");
        *current = Dialed { channel: dial(), number: self.number + 1 };
    }
}

/// The line to a host, on which calls carry a token, if there is one.
#[derive(Debug)]
pub(crate) struct Link {
    line: Arc<Line>,
    /// The channel that is ready for the next call.
    ready: Option<Channel>,
    bearer: Option<Arc<dyn TokenSource>>,
}

impl Clone for Link {
    /// Without the channel: a clone that is kept must not hold on to one.
    fn clone(&self) -> Self {
        Self { line: Arc::clone(&self.line), ready: None, bearer: self.bearer.clone() }
    }
}

fn invalid(text: impl Into<String>) -> SessionsError {
    SessionsError::new(Condition::InvalidArgument, text)
}

impl Link {
    /// Connects to `host:port`, `http://host:port`, `https://host:port`,
    /// `unix:///abs` or `unix:path`.
    pub(crate) async fn connect(
        address: &str,
        options: &ConnectOptions,
    ) -> Result<Self, SessionsError> {
        let (peer, scheme) =
            PeerAddress::with_scheme(address).map_err(|error| invalid(error.to_string()))?;
        if let Some(interval) = options.heartbeat {
            let whole = interval.subsec_nanos() == 0 && !interval.is_zero();
            if !whole || interval > HEARTBEAT_MAX {
                let max = HEARTBEAT_MAX.as_secs();
                return Err(invalid(format!("heartbeat: it is not 1 to {max} whole seconds")));
            }
        }
        let tls = match (scheme, &options.tls) {
            (Scheme::Http, Some(_)) => {
                return Err(invalid(format!("{address}: http and TLS exclude each other")));
            }
            (Scheme::Https, None) => Some(ClientTls::default()),
            (_, tls) => tls.clone(),
        };
        if tls.is_some() && matches!(peer, PeerAddress::Unix(_)) {
            return Err(invalid(format!("{peer}: TLS is for TCP")));
        }
        if options.bearer.is_some() && tls.is_none() && !is_local(&peer) {
            return Err(invalid(format!(
                "{peer}: a bearer token is not sent in plain text to another machine; use https"
            )));
        }
        let link = &options.link;
        let channel = match (tls, &peer) {
            (Some(tls), PeerAddress::Tcp(authority)) => {
                let connector = crate::tls::connector(authority.clone(), tls)
                    .await
                    .map_err(|error| invalid(mainspring_api::report(&error)))?;
                crate::channel::connect_tls(authority, connector, link).await
            }
            _ => crate::channel::connect(&peer, link, link.keep_alive_interval).await,
        };
        let (channel, dial) = channel.map_err(|error| {
            let text = format!("{peer}: {}", mainspring_api::report(&error));
            SessionsError::new(Condition::Unavailable, text)
        })?;
        Ok(Self::on(channel, Some(dial), options.bearer.clone()))
    }

    fn on(channel: Channel, dial: Option<Dial>, bearer: Option<Arc<dyn TokenSource>>) -> Self {
        let current = Mutex::new(Dialed { channel, number: 0 });
        Self { line: Arc::new(Line { dial, current }), ready: None, bearer }
    }

    /// What its calls are made over.
    pub(crate) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// Over a channel that somebody else made.
    pub(crate) fn over(channel: Channel) -> Self {
        Self::on(channel, None, None)
    }
}

/// Whether what is sent there stays on this machine.
fn is_local(peer: &PeerAddress) -> bool {
    let PeerAddress::Tcp(authority) = peer else {
        return true;
    };
    let host = authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => bare.eq_ignore_ascii_case("localhost"),
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn header(source: &dyn TokenSource) -> Result<HeaderValue, SessionsError> {
    let token = tokio::time::timeout(TOKEN_MAX, source.token()).await.map_err(|_| {
        let text = format!("no bearer token within TOKEN_MAX, {} s", TOKEN_MAX.as_secs());
        SessionsError::new(Condition::Unavailable, text)
    })??;
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose())).map_err(|_| {
        SessionsError::new(Condition::Unauthenticated, "the bearer token is malformed")
    })?;
    // Neither indexed by HTTP/2 nor shown by Debug.
    value.set_sensitive(true);
    Ok(value)
}

impl Service<Request<Body>> for Link {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let channel = self.ready.get_or_insert_with(|| self.line.current().channel.clone());
        channel.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let mut channel = self.ready.take().expect("it was polled to be ready");
        let bearer = self.bearer.clone();
        Box::pin(async move {
            if let Some(source) = bearer {
                // As a status it reaches the caller as it is: nothing was sent.
                let value = header(&*source).await.map_err(|error| to_status(&error))?;
                request.headers_mut().insert(AUTHORIZATION, value);
            }
            Ok(channel.call(request).await?)
        })
    }
}
