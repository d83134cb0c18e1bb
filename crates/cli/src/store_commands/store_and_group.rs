//! Finds the store and the group that a command works on.

use std::sync::Arc;

use ephor::memory::MemoryStore;
use ephor_core::BoxError;
use ephor_core::ids::GroupId;
use ephor_core::source::EventSource;
use ephor_core::store::{Store, View};
use ephor_stores::StoreUrl;
use ephor_stores::azblob::{BlobAddress, Layout};
use ephor_wire::connection_string::is_loopback;

use super::arguments::{GroupName, StoreName};

/// A group and its store.
pub(crate) struct Place {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) group: GroupId,
    /// The kind of the store.
    pub(crate) kind: Kind,
}

/// True if the store has no records of a group yet.
#[derive(Clone, Copy)]
pub(crate) struct IsNew(pub(crate) bool);

/// The kind of store that a URL names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Database,
    Blobs,
    /// The container of a legacy Event Processor Host, which is only read.
    LegacyContainer,
}

impl Kind {
    pub(crate) fn of(url: &StoreUrl) -> Result<Self, BoxError> {
        match url {
            StoreUrl::Sqlite(_) | StoreUrl::Postgres(_) => Ok(Self::Database),
            StoreUrl::Blob(text) => Ok(match BlobAddress::parse(text)?.layout {
                Layout::Sdk => Self::Blobs,
                Layout::Eph { .. } => Self::LegacyContainer,
            }),
            // Outside of its crate the enum needs this arm: a new store must be named above.
            _ => Err(format!("{url}: the commands of `ephor` do not support this kind of store").into()),
        }
    }

    /// Refuses a read-only store, before anything else is reported.
    fn must_be_writable(self, url: &StoreUrl) -> Result<(), BoxError> {
        if self != Self::LegacyContainer {
            return Ok(());
        }
        Err(format!(
            "{url} is the container of an old Event Processor Host, which is read-only: export its positions \
             with `ephor checkpoint export`, and `import` them into another store"
        )
        .into())
    }

    /// A hint at why a store may look empty although it is not.
    fn if_empty(self) -> &'static str {
        match self {
            Self::Database => "",
            Self::Blobs => {
                "; if this is the container of an old Event Processor Host, add layout=eph, namespace=… and \
                 hub=… to the URL"
            }
            Self::LegacyContainer => {
                "; if the old Event Processor Host used a prefix (storageBlobPrefix), add it after the \
                 container's name; if these are blobs of a current SDK, try without layout=eph"
            }
        }
    }
}

impl Place {
    /// Finds an existing group, also if its name differs in case.
    pub(crate) async fn find(look: &GroupName, store: &StoreName) -> Result<Self, BoxError> {
        let url: StoreUrl = store.url()?;
        let kind = Kind::of(&url)?;
        let store = open(&url).await?;
        let groups = store.groups().await?;
        if let Some(group) = other_case(&groups, look) {
            eprintln!("ephor: the store spells this group {}/{}", group.hub, group.group);
            return Ok(Self { store, group, kind });
        }
        let group = choose(&groups, look, kind)?;
        Ok(Self { store, group, kind })
    }

    /// Finds the group whose positions are to be changed. Blobs of an SDK are named in lower case, whatever
    /// the hub is called: there the name is used as it was given, because the hosts use it so.
    pub(crate) async fn find_to_change(look: &GroupName, store: &StoreName) -> Result<Self, BoxError> {
        let url: StoreUrl = store.url()?;
        let kind = Kind::of(&url)?;
        kind.must_be_writable(&url)?;
        let store = open(&url).await?;
        let groups = store.groups().await?;
        let group = match other_case(&groups, look) {
            Some(group) if kind == Kind::Blobs => as_given(&group, look)?,
            _ => choose(&groups, look, kind)?,
        };
        Ok(Self { store, group, kind })
    }

    /// Finds the group that an import writes to. If the store has no such group, the import begins it, and
    /// the store is created if `make` is set: an import may run before the first host.
    pub(crate) async fn find_or_begin(
        look: &GroupName,
        store: &StoreName,
        export: &GroupId,
        make: bool,
        check: impl AsyncFn(&GroupId, IsNew) -> Result<(), BoxError>,
    ) -> Result<Self, BoxError> {
        let url: StoreUrl = store.url()?;
        let kind = Kind::of(&url)?;
        kind.must_be_writable(&url)?;
        let found = ephor_stores::open_existing(&url).await?;
        let groups = match &found {
            Some(store) => store.groups().await?,
            None => Vec::new(),
        };
        let is_there = groups.iter().any(|group| is_meant(group, look));
        let group = match other_case(&groups, look) {
            _ if is_there => choose(&groups, look, kind)?,
            Some(other) if kind == Kind::Blobs => as_given(&other, look)?,
            Some(other) => return Err(written_so(&other)),
            None => as_given(export, look)?,
        };
        check(&group, IsNew(!is_there)).await?;
        let store = match found {
            Some(store) => store,
            None if make => ephor_stores::open(&url).await?,
            None => {
                eprintln!("ephor: there is no store at {url} yet: --yes creates it");
                Arc::new(MemoryStore::default())
            }
        };
        if !is_there {
            eprintln!("ephor: the store has no records of {group} yet: these positions are the first");
        }
        Ok(Self { store, group, kind })
    }

    pub(crate) async fn view(&self) -> Result<View, BoxError> {
        let view = self.store.view(&self.group).await?;
        for damage in &view.damaged {
            eprintln!("ephor: a record cannot be read and is omitted: {damage}");
        }
        Ok(view)
    }
}

/// Refuses a hub of the same name in another namespace: it is another hub, and its positions and its log mean
/// nothing here.
pub(crate) fn same_namespace(group: &GroupId, hub: &dyn EventSource) -> Result<(), BoxError> {
    let (ours, theirs) = (group.namespace.as_str(), hub.namespace().as_str());
    if ours.eq_ignore_ascii_case(theirs) || (is_loopback(ours) && is_loopback(theirs)) {
        return Ok(());
    }
    Err(format!(
        "{group} is in the namespace {ours}, but the connection string is for {theirs}: use the connection \
         string of {ours}; if both are names of one namespace, hosts with this connection string keep their \
         records under {theirs}"
    )
    .into())
}

/// Opens an existing store: creating an empty one would hide a wrong URL.
pub(crate) async fn open(url: &StoreUrl) -> Result<Arc<dyn Store>, BoxError> {
    let found = ephor_stores::open_existing(url).await?;
    let kind = Kind::of(url)?;
    found.ok_or_else(|| match kind {
        Kind::LegacyContainer => format!(
            "there is no container at {url}: correct its name; the container of an old Event Processor Host \
             is only read and never created"
        )
        .into(),
        _ => format!("there is no store at {url}: correct the URL, or start a host, which creates the store")
            .into(),
    })
}

fn is_meant(group: &GroupId, look: &GroupName) -> bool {
    group.hub == look.group.hub
        && group.group == look.group.group
        && look.namespace.as_deref().is_none_or(|name| group.namespace.as_str() == name)
}

/// The only group that matches without case; none if one matches exactly.
fn other_case(groups: &[GroupId], look: &GroupName) -> Option<GroupId> {
    let wanted = &look.group;
    let alike = |group: &&GroupId| {
        let namespace = look.namespace.as_deref();
        group.hub.as_str().eq_ignore_ascii_case(wanted.hub.as_str())
            && group.group.as_str().eq_ignore_ascii_case(wanted.group.as_str())
            && namespace.is_none_or(|name| group.namespace.as_str().eq_ignore_ascii_case(name))
    };
    let alike: Vec<&GroupId> = groups.iter().filter(alike).collect();
    match alike[..] {
        [one] if !is_meant(one, look) => Some(one.clone()),
        _ => None,
    }
}

/// The group id with the names that were given.
fn as_given(group: &GroupId, look: &GroupName) -> Result<GroupId, BoxError> {
    let namespace = match &look.namespace {
        Some(namespace) => namespace.parse()?,
        None => group.namespace.clone(),
    };
    Ok(GroupId { namespace, hub: look.group.hub.clone(), group: look.group.group.clone() })
}

fn written_so(other: &GroupId) -> BoxError {
    format!(
        "the store already has {}/{} in {}: use exactly this spelling",
        other.hub, other.group, other.namespace
    )
    .into()
}

fn choose(groups: &[GroupId], look: &GroupName, kind: Kind) -> Result<GroupId, BoxError> {
    let wanted = &look.group;
    let found: Vec<&GroupId> = groups.iter().filter(|group| is_meant(group, look)).collect();
    match found[..] {
        [one] => Ok(one.clone()),
        [] => {
            // If a namespace was given, it may be what is wrong.
            let place = |namespace: &str| match look.namespace {
                Some(_) => format!(" in {namespace}"),
                None => String::new(),
            };
            let name =
                |group: &GroupId| format!("{}/{}{}", group.hub, group.group, place(group.namespace.as_str()));
            let known: Vec<String> = groups.iter().map(name).collect();
            let known = match known[..] {
                [] => format!("it has none{}", kind.if_empty()),
                _ => format!("it has {}", known.join(", ")),
            };
            let asked = place(look.namespace.as_deref().unwrap_or_default());
            Err(format!("the store has no records of {}/{}{asked}; {known}", wanted.hub, wanted.group).into())
        }
        _ => {
            let names: Vec<&str> = found.iter().map(|group| group.namespace.as_str()).collect();
            Err(format!(
                "{}/{} exists in several namespaces: add --namespace with one of {}",
                wanted.hub,
                wanted.group,
                names.join(", ")
            )
            .into())
        }
    }
}
