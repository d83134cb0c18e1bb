//! Opens a container of Azure Blob Storage, and creates it if it is missing.
//!
//! `object_store` cannot create containers, so this signs one request by itself.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::StreamExt;
use hmac::{Hmac, Mac};
use object_store::azure::{MicrosoftAzure, MicrosoftAzureBuilder};
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use sha2::Sha256;
use time::OffsetDateTime;

use super::account::{Access, Account};
use super::result_store::ResultStoreError;

/// Shorter than a lease: a host should hear of trouble before it loses its partitions by it.
const ANSWER_TIME: Duration = Duration::from_secs(3);
const CONNECT_TIME: Duration = Duration::from_secs(2);
/// Attempts at one request, and all the time for them.
const RETRIES: usize = 3;
const RETRY_TIME: Duration = Duration::from_secs(4);
/// The version of the service's interface that the request is written for.
const VERSION: &str = "2021-08-06";

/// Opens a container, and makes it if it is missing.
pub(super) async fn open(account: &Account, container: &str) -> Result<MicrosoftAzure, ResultStoreError> {
    let failed = |why: String| ResultStoreError::Container {
        container: container.to_owned(),
        endpoint: account.endpoint.clone(),
        why,
    };
    let store = build(account, container).map_err(|error| failed(error.to_string()))?;
    let made = make(account, container).await;
    // Who may not make it can use it all the same, if somebody else has made it.
    match (made, store.list(None).next().await) {
        (Ok(()), _) | (Err(_), None | Some(Ok(_))) => Ok(store),
        (Err(why), Some(Err(_))) => Err(failed(format!(
            "{why}; check that the account is reachable and the key is correct, or create the container \
             yourself: az storage container create --name {container}"
        ))),
    }
}

fn build(account: &Account, container: &str) -> object_store::Result<MicrosoftAzure> {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(50),
        max_backoff: Duration::from_secs(1),
        base: 2.0,
    };
    let retry = RetryConfig { backoff, max_retries: RETRIES, retry_timeout: RETRY_TIME };
    let client = ClientOptions::new()
        .with_timeout(ANSWER_TIME)
        .with_connect_timeout(CONNECT_TIME)
        .with_allow_http(account.is_plain());
    let builder = MicrosoftAzureBuilder::new()
        .with_account(&account.name)
        .with_endpoint(account.endpoint.clone())
        .with_container_name(container)
        .with_client_options(client)
        .with_retry(retry);
    match &account.access {
        Access::Key(key) => builder.with_access_key(key),
        Access::Signature(pairs) => builder.with_sas_authorization(pairs.clone()),
    }
    .build()
}

/// Asks for the container. That it is there already is what we want, too.
async fn make(account: &Account, container: &str) -> Result<(), String> {
    let client = reqwest::Client::builder().timeout(ANSWER_TIME).connect_timeout(CONNECT_TIME).build();
    // Errors of requests carry their address, and an address may carry a signature.
    let client = client.map_err(|error| error.without_url().to_string())?;
    let url = format!("{}/{container}?restype=container", account.endpoint);
    let mut url = reqwest::Url::parse(&url).map_err(|error| error.to_string())?;
    if let Access::Signature(pairs) = &account.access {
        url.query_pairs_mut().extend_pairs(pairs);
    }
    let request = client.put(url).header("content-length", "0").header("x-ms-version", VERSION);
    let request = match &account.access {
        Access::Signature(_) => request,
        Access::Key(key) => {
            let date = http_date(SystemTime::now());
            let signature = sign(key, &string_to_sign(account, container, &date))?;
            request
                .header("x-ms-date", date)
                .header("authorization", format!("SharedKey {}:{signature}", account.name))
        }
    };
    let answer = request.send().await.map_err(|error| error.without_url().to_string())?;
    let code =
        answer.headers().get("x-ms-error-code").and_then(|code| code.to_str().ok()).unwrap_or_default();
    match answer.status().as_u16() {
        201 => Ok(()),
        409 if code == "ContainerAlreadyExists" => Ok(()),
        status => Err(format!("creating it failed with {status} {code}")),
    }
}

/// Returns the text to sign: the request, in the service's canonical form.
fn string_to_sign(account: &Account, container: &str, date: &str) -> String {
    let path = account.endpoint.splitn(4, '/').nth(3).map(|path| format!("/{path}")).unwrap_or_default();
    let name = &account.name;
    format!(
        "PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:{date}\nx-ms-version:{VERSION}\n/{name}{path}/{container}\nrestype:container"
    )
}

fn sign(key: &str, text: &str) -> Result<String, String> {
    let wrong = || "the AccountKey is invalid: copy the complete key".to_owned();
    let key = BASE64.decode(key).map_err(|_| wrong())?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).map_err(|_| wrong())?;
    mac.update(text.as_bytes());
    Ok(BASE64.encode(mac.finalize().into_bytes()))
}

/// A date as HTTP writes it.
fn http_date(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    let (weekday, month) = (time.weekday().to_string(), time.month().to_string());
    let (hour, minute, second) = time.to_hms();
    format!(
        "{}, {:02} {} {} {hour:02}:{minute:02}:{second:02} GMT",
        &weekday[..3],
        time.day(),
        &month[..3],
        time.year()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_http_does() {
        for (seconds, date) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (4_107_542_399, "Sun, 28 Feb 2100 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)), date);
        }
    }
}
