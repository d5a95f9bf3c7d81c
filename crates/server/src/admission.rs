//! Which connections are accepted: a number in all, a number from one address, and a few more for health checks.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits;

/// How many connections there may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    pub(crate) all: usize,
    /// From one address that is not this machine; `None` is as many as there may be.
    pub(crate) per_address: Option<usize>,
}

/// Counts open connections, in all and by address.
pub(crate) struct ConnectionSlots {
    slots: Arc<Semaphore>,
    reserve: Arc<Semaphore>,
    per_address: Option<usize>,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
    open: Gauge,
}

/// The slot of one connection. It is free again when this is dropped.
pub(crate) struct ConnectionSlot {
    /// Where the connection comes from.
    pub(crate) address: IpAddr,
    _slot: OwnedSemaphorePermit,
    _open: Option<Open>,
    _address: Option<Counted>,
}

/// Whether a connection is accepted.
pub(crate) enum Admission {
    Admitted(ConnectionSlot),
    /// Only to ask for `/health`.
    HealthOnly(ConnectionSlot),
    /// Not even for that.
    Full,
}

impl ConnectionSlots {
    pub(crate) fn new(limits: ConnectionLimits, open: Gauge) -> ConnectionSlots {
        ConnectionSlots {
            slots: Arc::new(Semaphore::new(limits.all)),
            reserve: Arc::new(Semaphore::new(limits::HEALTH_CONNECTIONS)),
            per_address: limits.per_address,
            by_address: Arc::default(),
            open,
        }
    }

    pub(crate) fn admit(&self, address: IpAddr) -> Admission {
        if let Ok(slot) = self.slots.clone().try_acquire_owned()
            && let Ok(counted) = self.count(address)
        {
            let open = Some(Open::new(self.open.clone()));
            return Admission::Admitted(ConnectionSlot {
                address,
                _slot: slot,
                _open: open,
                _address: counted,
            });
        }
        match self.reserve.clone().try_acquire_owned() {
            Ok(slot) => {
                Admission::HealthOnly(ConnectionSlot { address, _slot: slot, _open: None, _address: None })
            }
            Err(_) => Admission::Full,
        }
    }

    /// Counts a connection from another machine; an error is one too many.
    fn count(&self, address: IpAddr) -> Result<Option<Counted>, ()> {
        let (Some(max), false) = (self.per_address, address.to_canonical().is_loopback()) else {
            return Ok(None);
        };
        let address = network(address.to_canonical());
        let mut counts = lock(&self.by_address);
        let count = counts.entry(address).or_default();
        if *count >= max {
            return Err(());
        }
        *count += 1;
        Ok(Some(Counted { address, counts: self.by_address.clone() }))
    }
}

/// One host usually has a whole /64 network of IPv6 addresses.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection from an address, counted until it is dropped.
struct Counted {
    address: IpAddr,
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// An open connection, counted until it is dropped.
struct Open(Gauge);

impl Open {
    fn new(gauge: Gauge) -> Open {
        gauge.inc();
        Open(gauge)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(all: usize, per_address: usize) -> ConnectionSlots {
        ConnectionSlots::new(ConnectionLimits { all, per_address: Some(per_address) }, Gauge::default())
    }

    fn admitted(slots: &ConnectionSlots, address: &str) -> Option<ConnectionSlot> {
        match slots.admit(address.parse().unwrap()) {
            Admission::Admitted(slot) => Some(slot),
            Admission::HealthOnly(_) | Admission::Full => None,
        }
    }

    /// S06: one address cannot take every connection; this machine may.
    #[test]
    fn an_address_has_its_bound() {
        let slots = slots(10, 2);
        let taken = ["192.0.2.1", "::ffff:192.0.2.1"].map(|address| admitted(&slots, address).unwrap());
        assert!(admitted(&slots, "192.0.2.1").is_none());
        let others =
            ["192.0.2.2", "2001:db8::1", "2001:db8::2"].map(|address| admitted(&slots, address).unwrap());
        assert!(admitted(&slots, "2001:db8::3").is_none(), "one network of IPv6 is one address");
        let own = ["127.0.0.1"; 5].map(|address| admitted(&slots, address).unwrap());
        assert!(admitted(&slots, "127.0.0.1").is_none(), "ten in all is the limit");
        assert_eq!(slots.open.get(), 10);
        drop((taken, others, own));
        assert!(admitted(&slots, "192.0.2.1").is_some());
        assert!(lock(&slots.by_address).is_empty(), "closed connections are not counted");
    }

    #[test]
    fn a_few_more_may_ask_for_health() {
        let slots = slots(1, 1);
        let _one = admitted(&slots, "127.0.0.1").unwrap();
        let ask = || slots.admit("127.0.0.1".parse().unwrap());
        let probes: Vec<_> = (0..limits::HEALTH_CONNECTIONS).map(|_| ask()).collect();
        assert!(probes.iter().all(|it| matches!(it, Admission::HealthOnly(_))));
        assert!(matches!(ask(), Admission::Full));
    }
}
