//! Settings of the route role, shared by `towpath up` and `towpath route`.

use std::time::Duration;

use clap::{Args, value_parser};
use ipnet::IpNet;
use towpath_route::Config;
use towpath_route::webhook::Reach;

use crate::server_file::ServerFile;
use crate::settings::Settings;

/// How events are numbered, routed and delivered.
#[derive(Args, Debug, Clone)]
pub(crate) struct RouteSettings {
    /// Longest interval between polls for events without a position
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = value_parser!(u32).range(1..=10_000))]
    route_poll_ms: u32,
    /// Concurrent routing passes; more than the total slices of all route workers has no effect
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u32).range(1..=64))]
    route_passes: u32,
    /// Concurrent route webhooks
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u32).range(1..=10_000))]
    webhook_concurrency: u32,
    /// Private networks that route webhooks may reach, also over http, as in 10.1.0.0/16,fd00::/8
    #[arg(long, value_name = "NETWORKS", default_value = "", value_parser = parse_networks)]
    webhook_networks: Networks,
}

/// A list of networks as one value, so that it is one setting.
#[derive(Debug, Clone, Default)]
struct Networks(Vec<IpNet>);

fn parse_networks(text: &str) -> Result<Networks, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let read = |part: &str| {
        part.parse()
            .map_err(|_| format!("{part} is not a network; expected a form such as 10.1.0.0/16 or fd00::/8"))
    };
    parts.map(read).collect::<Result<Vec<IpNet>, String>>().map(Networks)
}

/// Which addresses route webhooks may reach.
pub(crate) fn reach(settings: &Settings) -> Reach {
    Reach { local: settings.stream.webhook_local(), networks: settings.route.webhook_networks.0.clone() }
}

/// Which addresses the webhooks of the server on this data directory may reach; without one, what the settings say.
pub(crate) fn reach_of_server(settings: &Settings) -> Reach {
    match ServerFile::find(&settings.data) {
        Some(server) => Reach {
            local: server.webhook_local,
            networks: server.webhook_networks.iter().filter_map(|network| network.parse().ok()).collect(),
        },
        None => reach(settings),
    }
}

/// The role as the settings describe it.
pub(crate) fn config(settings: &Settings) -> Config {
    let route = &settings.route;
    Config {
        passes: route.route_passes as usize,
        deliveries: route.webhook_concurrency as usize,
        poll: Duration::from_millis(route.route_poll_ms.into()),
        reach: reach(settings),
        ..Config::default()
    }
}
