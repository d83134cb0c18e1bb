//! Test helper: a faulty object store that is slow, fails, loses answers, and repeats requests.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: Arc<InMemory>,
    chance: Arc<Chance>,
}

/// How much goes wrong, of 100 calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    /// Nothing is done.
    pub(crate) fails: u8,
    /// It is done, but the answer is lost.
    pub(crate) deaf: u8,
    /// It is done, tried again below us, and the answer is about the second attempt.
    pub(crate) forgets: u8,
    /// How often it waits, at most, before and after.
    pub(crate) waits: u8,
}

#[derive(Debug)]
struct Chance {
    rates: Rates,
    random: Mutex<fastrand::Rng>,
}

impl Chance {
    fn below(&self, limit: u8) -> u8 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).u8(0..limit)
    }

    fn strikes(&self, rate: u8) -> bool {
        self.below(100) < rate
    }

    async fn wait(&self) {
        for _ in 0..self.below(self.rates.waits + 1) {
            tokio::task::yield_now().await;
        }
    }

    async fn before(&self) -> Result<()> {
        self.wait().await;
        if self.strikes(self.rates.fails) { Err(failed("it did nothing")) } else { Ok(()) }
    }

    async fn after<T>(&self, result: Result<T>) -> Result<T> {
        self.wait().await;
        if self.strikes(self.rates.deaf) { Err(failed("nobody heard its answer")) } else { result }
    }
}

fn failed(why: &str) -> Error {
    Error::Generic { store: "faulty", source: why.into() }
}

impl FaultyStore {
    pub(crate) fn store(rates: Rates, seed: u64) -> Arc<dyn ObjectStore> {
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        Arc::new(Self { inner: Arc::new(InMemory::new()), chance: Arc::new(Chance { rates, random }) })
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

#[async_trait::async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.chance.before().await?;
        let mut result = self.inner.put_opts(path, payload.clone(), options.clone()).await;
        if self.chance.strikes(self.chance.rates.forgets) {
            self.chance.wait().await;
            result = self.inner.put_opts(path, payload, options).await;
        }
        self.chance.after(result).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.chance.before().await?;
        let result = self.inner.get_opts(path, options).await;
        self.chance.after(result).await
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        // What is listed is what there is when the list is read first.
        let (chance, inner, prefix) = (self.chance.clone(), self.inner.clone(), prefix.cloned());
        let listed = async move {
            if let Err(error) = chance.before().await {
                return vec![Err(error)];
            }
            let found: Vec<_> = inner.list(prefix.as_ref()).collect().await;
            match chance.after(Ok(())).await {
                Ok(()) => found,
                Err(error) => vec![Err(error)],
            }
        };
        listed.map(futures_util::stream::iter).flatten_stream().boxed()
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (chance, inner) = (self.chance.clone(), self.inner.clone());
        let one = move |path: Result<Path>| {
            let (chance, inner) = (chance.clone(), inner.clone());
            async move {
                let path = path?;
                chance.before().await?;
                let result = inner.delete_stream(futures_util::stream::iter([Ok(path)]).boxed()).next().await;
                chance.after(result.unwrap_or_else(|| Err(failed("no answer")))).await
            }
        };
        paths.then(one).boxed()
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
