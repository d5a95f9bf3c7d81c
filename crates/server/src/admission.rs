//! Who may connect: so many in all, so many from one address, and a few more who only ask how it is going.

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

/// The list of those who are here.
pub(crate) struct Guests {
    slots: Arc<Semaphore>,
    reserve: Arc<Semaphore>,
    per_address: Option<usize>,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
    open: Gauge,
}

/// A place among them. It is free again when this is dropped.
pub(crate) struct Place {
    /// Where its guest comes from.
    pub(crate) address: IpAddr,
    _slot: OwnedSemaphorePermit,
    _open: Option<Open>,
    _address: Option<Counted>,
}

/// Whether somebody may come in.
pub(crate) enum Admission {
    Admitted(Place),
    /// There is no room but for a question about health.
    Crowded(Place),
    /// There is no room at all.
    Full,
}

impl Guests {
    pub(crate) fn new(limits: ConnectionLimits, open: Gauge) -> Guests {
        Guests {
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
            return Admission::Admitted(Place { address, _slot: slot, _open: open, _address: counted });
        }
        match self.reserve.clone().try_acquire_owned() {
            Ok(slot) => Admission::Crowded(Place { address, _slot: slot, _open: None, _address: None }),
            Err(_) => Admission::Full,
        }
    }

    /// Counts somebody from elsewhere; an error is one too many.
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

/// Whoever has one address of IPv6 has all those of its network.
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

    fn guests(all: usize, per_address: usize) -> Guests {
        Guests::new(ConnectionLimits { all, per_address: Some(per_address) }, Gauge::default())
    }

    fn admitted(guests: &Guests, address: &str) -> Option<Place> {
        match guests.admit(address.parse().unwrap()) {
            Admission::Admitted(place) => Some(place),
            Admission::Crowded(_) | Admission::Full => None,
        }
    }

    /// S06: one address cannot take every connection; this machine may.
    #[test]
    fn an_address_has_its_bound() {
        let guests = guests(10, 2);
        let places = ["192.0.2.1", "::ffff:192.0.2.1"].map(|address| admitted(&guests, address).unwrap());
        assert!(admitted(&guests, "192.0.2.1").is_none());
        let others =
            ["192.0.2.2", "2001:db8::1", "2001:db8::2"].map(|address| admitted(&guests, address).unwrap());
        assert!(admitted(&guests, "2001:db8::3").is_none(), "one network of IPv6 is one address");
        let own = ["127.0.0.1"; 5].map(|address| admitted(&guests, address).unwrap());
        assert!(admitted(&guests, "127.0.0.1").is_none(), "there are ten in all");
        assert_eq!(guests.open.get(), 10);
        drop((places, others, own));
        assert!(admitted(&guests, "192.0.2.1").is_some());
        assert!(lock(&guests.by_address).is_empty(), "nobody is remembered who has left");
    }

    #[test]
    fn a_few_more_may_ask_about_health() {
        let guests = guests(1, 1);
        let _one = admitted(&guests, "127.0.0.1").unwrap();
        let ask = || guests.admit("127.0.0.1".parse().unwrap());
        let crowd: Vec<_> = (0..limits::HEALTH_CONNECTIONS).map(|_| ask()).collect();
        assert!(crowd.iter().all(|it| matches!(it, Admission::Crowded(_))));
        assert!(matches!(ask(), Admission::Full));
    }
}
