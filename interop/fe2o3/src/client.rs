//! A connection with one session, authenticated as each operation requires: opens links, and queries
//! `$management`.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::SenderAttachError;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::{Connection, Sender, Session};
use fe2o3_amqp_cbs::client::CbsClient;
use fe2o3_amqp_cbs::token::CbsToken;
use fe2o3_amqp_management::client::MgmtClient;
use fe2o3_amqp_management::error::Error as ManagementError;
use fe2o3_amqp_management::operations::{ReadRequest, ReadResponse};
use fe2o3_amqp_management::request::Request;
use fe2o3_amqp_types::messaging::ApplicationProperties;
use fe2o3_amqp_types::primitives::{OrderedMap, Value};
use hmac::{Hmac, Mac};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

pub type Failure = Box<dyn Error + Send + Sync>;
/// An answer of `$management` about a hub or a partition.
pub type Description = OrderedMap<String, Value>;

/// A byte stream that can carry a connection.
pub trait Stream: AsyncRead + AsyncWrite + Debug + Send + Unpin + 'static {}
impl<S: AsyncRead + AsyncWrite + Debug + Send + Unpin + 'static> Stream for S {}

/// The parts of a connection string.
#[derive(Clone)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
    pub key_name: String,
    pub key: String,
}

impl Endpoint {
    /// The one in `EPHOR_CONNECTION`.
    pub fn given() -> Result<Self, Failure> {
        let text = std::env::var("EPHOR_CONNECTION")?;
        let field = |name: &str| {
            let found = text.split(';').filter_map(|part| part.split_once('=')).find(|(key, _)| *key == name);
            found.map(|(_, value)| value.to_owned()).ok_or(format!("no {name} in EPHOR_CONNECTION"))
        };
        let address = field("Endpoint")?;
        let address = address.trim_start_matches("sb://").trim_end_matches('/');
        let (host, port) = address.split_once(':').ok_or("no port in EPHOR_CONNECTION")?;
        Ok(Self {
            host: host.to_owned(),
            port: port.parse()?,
            key_name: field("SharedAccessKeyName")?,
            key: field("SharedAccessKey")?,
        })
    }

    /// The audience of tokens for a hub.
    pub fn audience(&self, hub: &str) -> String {
        format!("sb://{}/{hub}", self.host)
    }

    /// A shared access signature that ends so many seconds from now.
    pub fn token(&self, hub: &str, seconds: i64) -> Result<String, Failure> {
        let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?;
        let expiry = now + seconds;
        let resource = utf8_percent_encode(&self.audience(hub), NON_ALPHANUMERIC).to_string();
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.as_bytes())?;
        mac.update(format!("{resource}\n{expiry}").as_bytes());
        let signature = base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes());
        let signature = utf8_percent_encode(&signature, NON_ALPHANUMERIC);
        let name = &self.key_name;
        Ok(format!("SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={name}"))
    }
}

/// A connection and one session on it.
pub struct Client {
    pub endpoint: Endpoint,
    connection: ConnectionHandle<()>,
    session: SessionHandle<()>,
}

impl Client {
    /// Connects, and puts a token for the hub.
    pub async fn open(hub: &str) -> Result<Self, Failure> {
        let mut client = Self::anonymous().await?;
        client.log_in(hub).await?;
        Ok(client)
    }

    /// Connects, and shows nothing of itself.
    pub async fn anonymous() -> Result<Self, Failure> {
        Self::connect(Endpoint::given()?, Some(SaslProfile::Anonymous)).await
    }

    pub async fn connect(endpoint: Endpoint, sasl: Option<SaslProfile>) -> Result<Self, Failure> {
        let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await?;
        stream.set_nodelay(true)?;
        Self::over(stream, endpoint, sasl).await
    }

    pub async fn over(
        stream: impl Stream,
        endpoint: Endpoint,
        sasl: Option<SaslProfile>,
    ) -> Result<Self, Failure> {
        let mut builder = Connection::builder().container_id(unique("container")).hostname(&*endpoint.host);
        if let Some(sasl) = sasl {
            builder = builder.sasl_profile(sasl);
        }
        let mut connection = builder.open_with_stream(stream).await?;
        let session = Session::begin(&mut connection).await?;
        Ok(Self { endpoint: endpoint.clone(), connection, session })
    }

    pub async fn log_in(&mut self, hub: &str) -> Result<(), Failure> {
        let token = self.endpoint.token(hub, 600)?;
        Ok(self.put_token(hub, &token).await?)
    }

    /// Puts a token for a hub by `$cbs`.
    pub async fn put_token(&mut self, hub: &str, token: &str) -> Result<(), ManagementError> {
        let attached = CbsClient::attach(&mut self.session).await;
        let mut cbs = attached.map_err(|error| ManagementError::DecodeError(Some(odd(&error))))?;
        let token = CbsToken::new(token, "servicebus.windows.net:sastoken", None);
        let answer = cbs.put_token(self.endpoint.audience(hub), token).await;
        drop(cbs.close().await);
        answer
    }

    /// A link to a hub or, with its path, to a partition.
    pub async fn sender(&mut self, address: &str) -> Result<Sender, SenderAttachError> {
        Sender::attach(&mut self.session, unique("sender"), address).await
    }

    pub fn session(&mut self) -> &mut SessionHandle<()> {
        &mut self.session
    }

    pub async fn describe_hub(&mut self, hub: &str) -> Result<Description, ManagementError> {
        let request = ReadRequest::name(hub.to_owned(), "com.microsoft:eventhub", None);
        self.ask(request).await
    }

    pub async fn describe_partition(&mut self, hub: &str, id: &str) -> Result<Description, ManagementError> {
        self.ask(ReadPartition { hub: hub.to_owned(), id: id.to_owned() }).await
    }

    async fn ask<R>(&mut self, request: R) -> Result<Description, ManagementError>
    where
        R: Request<Response = ReadResponse>,
    {
        let attached = MgmtClient::attach(&mut self.session, unique("replies")).await;
        let mut management = attached.map_err(|error| ManagementError::DecodeError(Some(odd(&error))))?;
        let answer = management.call(request).await;
        drop(management.close().await);
        answer.map(|answer| answer.entity_attributes)
    }

    /// The number of the last event, -1 if there is none.
    pub async fn last(&mut self, hub: &str, partition: &str) -> Result<i64, Failure> {
        let found = self.describe_partition(hub, partition).await?;
        match found.get("last_enqueued_sequence_number") {
            Some(Value::Long(number)) => Ok(*number),
            other => Err(format!("last_enqueued_sequence_number: {other:?}").into()),
        }
    }

    /// How a peer should leave; one that is gone already is no failure.
    pub async fn close(mut self) {
        drop(self.session.end().await);
        drop(self.connection.close().await);
    }
}

/// The partition of a hub, which the library's own request for reading has no field for.
struct ReadPartition {
    hub: String,
    id: String,
}

impl Request for ReadPartition {
    const OPERATION: &'static str = "READ";
    type Response = ReadResponse;
    type Body = ();

    fn manageable_entity_type(&mut self) -> Option<String> {
        Some("com.microsoft:partition".to_owned())
    }

    fn encode_application_properties(&mut self) -> Option<ApplicationProperties> {
        let properties = ApplicationProperties::builder();
        Some(properties.insert("name", self.hub.as_str()).insert("partition", self.id.as_str()).build())
    }

    fn encode_body(self) -> Self::Body {}
}

/// The library has no room for a refused link in the error of a request.
fn odd(error: &impl ToString) -> fe2o3_amqp_management::error::InvalidType {
    fe2o3_amqp_management::error::InvalidType { expected: "a link".to_owned(), actual: error.to_string() }
}

/// A name that nobody else has.
pub fn unique(what: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Fails unless both are the same.
pub fn equal<T: PartialEq + Debug>(found: T, expected: T, what: &str) -> Result<(), Failure> {
    if found == expected {
        return Ok(());
    }
    let show = |value: &T| format!("{value:?}").chars().take(200).collect::<String>();
    Err(format!("{what}: expected {}, found {}", show(&expected), show(&found)).into())
}

/// A handle that several tasks hold.
pub type Shared<T> = Arc<std::sync::Mutex<T>>;
