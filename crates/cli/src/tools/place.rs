//! Which store, and which group in it.

use std::sync::Arc;

use ephor_core::BoxError;
use ephor_core::ids::GroupId;
use ephor_core::store::{Store, View};
use ephor_stores::StoreUrl;

use super::arguments::Look;

/// A group and the store that it is in.
pub(crate) struct Place {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) group: GroupId,
}

impl Place {
    /// The group that was asked for; there has to be one.
    pub(crate) async fn find(look: &Look) -> Result<Self, BoxError> {
        let store = open(&look.common.store).await?;
        let group = choose(store.groups().await?, look)?;
        Ok(Self { store, group })
    }

    pub(crate) async fn view(&self) -> Result<View, BoxError> {
        let view = self.store.view(&self.group).await?;
        for damage in &view.damaged {
            eprintln!("ephor: a record cannot be read and is left out: {damage}");
        }
        Ok(view)
    }
}

/// Opens a store that exists: a tool that makes an empty one would hide a wrong path.
pub(crate) async fn open(url: &str) -> Result<Arc<dyn Store>, BoxError> {
    let url: StoreUrl = url.parse()?;
    if let StoreUrl::Sqlite(path) = &url
        && !path.exists()
    {
        return Err(format!("there is no store at {url}: the hosts make one when they first start").into());
    }
    Ok(ephor_stores::open(&url).await?)
}

fn choose(groups: Vec<GroupId>, look: &Look) -> Result<GroupId, BoxError> {
    let wanted = &look.group;
    let is_meant = |group: &&GroupId| {
        group.hub == wanted.hub
            && group.group == wanted.group
            && look.namespace.as_deref().is_none_or(|name| group.namespace.as_str() == name)
    };
    let found: Vec<&GroupId> = groups.iter().filter(is_meant).collect();
    match found[..] {
        [one] => Ok(one.clone()),
        [] => {
            let known: Vec<String> =
                groups.iter().map(|group| format!("{}/{}", group.hub, group.group)).collect();
            let known =
                if known.is_empty() { "it has none".into() } else { format!("it has {}", known.join(", ")) };
            Err(format!("the store has no records of {}/{}; {known}", wanted.hub, wanted.group).into())
        }
        _ => {
            let names: Vec<&str> = found.iter().map(|group| group.namespace.as_str()).collect();
            Err(format!(
                "{}/{} is there in several namespaces: add --namespace with one of {}",
                wanted.hub,
                wanted.group,
                names.join(", ")
            )
            .into())
        }
    }
}
