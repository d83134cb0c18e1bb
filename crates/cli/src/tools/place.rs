//! Which store, and which group in it.

use std::sync::Arc;

use ephor::memory::MemoryStore;
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

    /// The group that an export goes to. A store that knows nothing of it yet begins it, and is made if `make`
    /// says so: an export is there before the hosts are.
    pub(crate) async fn find_or_begin(look: &Look, export: &GroupId, make: bool) -> Result<Self, BoxError> {
        let store = open_or_make(&look.common.store, make).await?;
        let groups = store.groups().await?;
        if groups.iter().any(|group| is_meant(group, look)) {
            return Ok(Self { store, group: choose(groups, look)? });
        }
        let namespace = match &look.namespace {
            Some(namespace) => namespace.parse()?,
            None => export.namespace.clone(),
        };
        let group = GroupId { namespace, hub: look.group.hub.clone(), group: look.group.group.clone() };
        eprintln!("ephor: the store has no records of {group} yet: they begin with these");
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

/// Opens a store that exists: a tool that makes an empty one would hide a wrong URL.
pub(crate) async fn open(url: &str) -> Result<Arc<dyn Store>, BoxError> {
    let url: StoreUrl = url.parse()?;
    let found = ephor_stores::open_existing(&url).await?;
    found
        .ok_or_else(|| format!("there is no store at {url}: the hosts make one when they first start").into())
}

/// Opens a store, and makes it if `make` says so; if not, an empty one stands for one that is not there.
async fn open_or_make(url: &str, make: bool) -> Result<Arc<dyn Store>, BoxError> {
    let url: StoreUrl = url.parse()?;
    if let Some(there) = ephor_stores::open_existing(&url).await? {
        return Ok(there);
    }
    if make {
        return Ok(ephor_stores::open(&url).await?);
    }
    eprintln!("ephor: there is no store at {url} yet: it would be made");
    Ok(Arc::new(MemoryStore::default()))
}

fn is_meant(group: &GroupId, look: &Look) -> bool {
    group.hub == look.group.hub
        && group.group == look.group.group
        && look.namespace.as_deref().is_none_or(|name| group.namespace.as_str() == name)
}

fn choose(groups: Vec<GroupId>, look: &Look) -> Result<GroupId, BoxError> {
    let wanted = &look.group;
    let found: Vec<&GroupId> = groups.iter().filter(|group| is_meant(group, look)).collect();
    match found[..] {
        [one] => Ok(one.clone()),
        [] => {
            // Where a namespace was asked for, that may be what is wrong.
            let place = |namespace: &str| match look.namespace {
                Some(_) => format!(" in {namespace}"),
                None => String::new(),
            };
            let name =
                |group: &GroupId| format!("{}/{}{}", group.hub, group.group, place(group.namespace.as_str()));
            let known: Vec<String> = groups.iter().map(name).collect();
            let known =
                if known.is_empty() { "it has none".into() } else { format!("it has {}", known.join(", ")) };
            let asked = place(look.namespace.as_deref().unwrap_or_default());
            Err(format!("the store has no records of {}/{}{asked}; {known}", wanted.hub, wanted.group).into())
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
