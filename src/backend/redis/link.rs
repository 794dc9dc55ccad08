//! [`Link`]: a connection that is there; [`Source`]: how to come by one.

use std::{fmt, sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, RedisError, Value, aio::ConnectionLike,
};

use crate::{ConfigError, clock::BoxFuture};

/// A connection that is there.
pub(super) trait Link: Send + Sync {
    /// Sends a command, in the order of the calls as far as one server is concerned, and never twice.
    fn send<'a>(&'a self, cmd: &'a Cmd) -> BoxFuture<'a, Result<Value, RedisError>>;

    /// Whether it leads to several servers.
    fn is_cluster(&self) -> bool;
}

/// A driver's connection, whose clones send over one pipeline.
struct Driven<C> {
    connection: C,
    is_cluster: bool,
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Link for Driven<C> {
    fn send<'a>(&'a self, cmd: &'a Cmd) -> BoxFuture<'a, Result<Value, RedisError>> {
        let mut connection = self.connection.clone();
        Box::pin(async move { connection.req_packed_command(cmd).await?.extract_error() })
    }

    fn is_cluster(&self) -> bool {
        self.is_cluster
    }
}

/// How to come by a connection.
pub(super) enum Source {
    /// The first of these that takes writes.
    Servers(Vec<Client>),
    #[cfg(feature = "redis-cluster")]
    Cluster(Box<redis::cluster::ClusterClient>),
    /// One that somebody else has made and keeps up.
    Given(Arc<dyn Link>),
}

impl Source {
    pub(super) fn servers<T: IntoConnectionInfo>(
        urls: impl IntoIterator<Item = T>,
    ) -> Result<Self, ConfigError> {
        let clients = urls.into_iter().map(client).collect::<Result<Vec<_>, _>>()?;
        if clients.is_empty() {
            return Err(ConfigError::new("url", "none", "must be one at least"));
        }
        Ok(Self::Servers(clients))
    }

    #[cfg(feature = "redis-cluster")]
    pub(super) fn cluster<T: IntoConnectionInfo>(
        urls: impl IntoIterator<Item = T>,
    ) -> Result<Self, ConfigError> {
        let urls =
            urls.into_iter().map(|url| url.into_connection_info().map_err(|error| bad(&error)));
        let urls = urls.collect::<Result<Vec<_>, _>>()?;
        if urls.is_empty() {
            return Err(ConfigError::new("url", "none", "must be one at least"));
        }
        // Without retries of the driver's: it would send again what was not answered.
        let builder = redis::cluster::ClusterClientBuilder::new(urls)
            .retries(0)
            .tcp_settings(redis::io::tcp::TcpSettings::default().set_nodelay(true));
        let client = builder.build().map_err(|error| bad(&error))?;
        Ok(Self::Cluster(Box::new(client)))
    }

    pub(super) fn given<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::Given(Arc::new(Driven { connection, is_cluster: false }))
    }

    pub(super) fn is_cluster(&self) -> bool {
        match self {
            Self::Servers(_) => false,
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(_) => true,
            Self::Given(link) => link.is_cluster(),
        }
    }

    /// How many places there are to look for a connection.
    pub(super) fn places(&self) -> usize {
        match self {
            Self::Servers(clients) => clients.len(),
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(_) => 1,
            Self::Given(_) => 1,
        }
    }

    /// Connects to one of them.
    pub(super) async fn connect(
        &self,
        place: usize,
        pipeline: usize,
        longest: Duration,
    ) -> Result<Arc<dyn Link>, RedisError> {
        match self {
            Self::Servers(clients) => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(longest.mul_f32(0.8)))
                    // Each call has a deadline of ours.
                    .set_response_timeout(None)
                    .set_pipeline_buffer_size(pipeline)
                    .set_write_backpressure_boundary(2_048);
                let client = &clients[place];
                let connection =
                    client.get_multiplexed_async_connection_with_config(&config).await?;
                Ok(Arc::new(Driven { connection, is_cluster: false }))
            }
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(client) => {
                let connection = client.get_async_connection().await?;
                Ok(Arc::new(Driven { connection, is_cluster: true }))
            }
            Self::Given(link) => Ok(Arc::clone(link)),
        }
    }
}

fn client<T: IntoConnectionInfo>(url: T) -> Result<Client, ConfigError> {
    let info = url.into_connection_info().map_err(|error| bad(&error))?;
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    Client::open(info.set_tcp_settings(tcp)).map_err(|error| bad(&error))
}

/// The value is not told: it may hold a password.
fn bad(error: &RedisError) -> ConfigError {
    let reason = format!(
        "is no address of a Redis server ({error}); write redis://[user:password@]host[:port][/database], or \
         rediss:// with TLS, for which the crate `redis` needs one of its TLS features"
    );
    ConfigError::new("url", "(not shown)", reason)
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Servers(clients) => {
                // Addresses alone: settings hold passwords.
                let addresses =
                    clients.iter().map(|client| client.get_connection_info().addr().to_string());
                f.debug_list().entries(addresses).finish()
            }
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(_) => f.write_str("a cluster"),
            Self::Given(_) => f.write_str("a connection"),
        }
    }
}
