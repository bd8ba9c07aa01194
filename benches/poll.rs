//! Measures the cost of a poll inside the gate: seal check, presence, rank, wait, new seal. Lines have 600,000 and
//! 10,000,000 people. Allocations are counted.
#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use std::{
    future::{Future, pending},
    hint::black_box,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use admission::{
    Claim, Decided, Departure, FirstTold, JoinKey, Leaver, PagePolls, Policy, SealKey, Seals, Snapshot,
    Ticket, ZoneId,
};
use criterion::{Criterion, criterion_group, criterion_main};
use events::Bus;
use gate::{Gate, Reply, Token};
use store::{JoinedOnce, LeftVisits, Line, RegisterContents, Store, StoreError};
use weir_benches::{Counting, LINES, NOW, line, policy};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A store with one snapshot. Its decisions never end.
#[derive(Clone)]
struct FixedSnapshot(Snapshot);

impl Store for FixedSnapshot {
    type Line = Self;

    async fn zones(&self) -> Result<Option<RegisterContents>, StoreError> {
        Ok(None)
    }

    fn line(self: &Arc<Self>, _: &ZoneId) -> Self {
        Self::clone(self)
    }
}

impl Line for FixedSnapshot {
    async fn open(&self, _: Policy) -> Result<Snapshot, StoreError> {
        Ok(self.0.clone())
    }

    async fn put(&self, _: Policy) -> Result<Snapshot, StoreError> {
        Ok(self.0.clone())
    }

    async fn join_once(&self, _: Vec<Option<JoinKey>>) -> Result<JoinedOnce, StoreError> {
        pending().await
    }

    async fn joined_before(&self, _: Vec<JoinKey>) -> Result<Vec<Option<Ticket>>, StoreError> {
        pending().await
    }

    async fn enter(&self, _: Vec<Claim>) -> Result<Decided, StoreError> {
        pending().await
    }

    async fn beat(&self, _: Vec<PagePolls>, _: u32) -> Result<Snapshot, StoreError> {
        pending().await
    }

    async fn visits(&self, _: Vec<PagePolls>) -> Result<LeftVisits, StoreError> {
        pending().await
    }

    async fn leave(&self, _: Vec<Leaver>) -> Result<Vec<Departure>, StoreError> {
        pending().await
    }

    async fn bind(&self, _: Claim, _: u64) -> Result<u64, StoreError> {
        pending().await
    }
}

/// Polls a future that is ready at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("a poll behind the front waits for nothing"),
    }
}

fn polls(criterion: &mut Criterion) {
    let zone = ZoneId::parse("ZONE").expect("a name");
    let seals = Seals::only(SealKey { id: 1, secret: [7; 32] });
    let sealer = seals.sealer(&zone);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _entered = runtime.enter();
    let bus = Arc::new(Bus::new().expect("a thread"));
    for (people, name) in LINES {
        let gate =
            Gate::new(Arc::new(FixedSnapshot(line(people).beat(&[], NOW))), seals.clone(), Arc::clone(&bus));
        runtime.block_on(gate.serve_zones(vec![(zone.clone(), policy().into())])).expect("served");
        // Holders all over the line in random order, because neighbours would share cache lines.
        let seq = |i: u64| 2_000 + i * 7_919_777 % (people - 4_000);
        let told = |seq| Ticket {
            epoch: 7,
            seq,
            issued_ms: NOW.ms,
            first_told: Some(FirstTold::exactly(90)),
            told_s: Some(90),
        };
        let tokens: Vec<Token> = (0..65_536).map(|i| sealer.seal(&told(seq(i)))).collect();
        let mut next = tokens.iter().cycle();
        let mut ask = || now(gate.poll("ZONE", next.next().expect("a cycle")));
        assert!(matches!(ask(), Ok(Reply::Waiting { .. })), "{:?}", ask());
        let before = Counting::allocations();
        for _ in 0..10_000 {
            black_box(ask()).expect("waits");
        }
        let allocations = Counting::allocations() - before;
        println!("poll/{name}: {allocations} allocations in 10,000 polls");
        criterion.bench_function(&format!("poll/{name}"), |bench| bench.iter(&mut ask));
    }
    let token = sealer.seal(&Ticket::new(7, 5, NOW.ms));
    criterion.bench_function("poll/seal check alone", |bench| bench.iter(|| sealer.open(black_box(&token))));
}

criterion_group!(benches, polls);
criterion_main!(benches);
