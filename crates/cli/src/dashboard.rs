//! Builds the dashboard from the settings.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use tokio_util::sync::CancellationToken;
use towpath_dashboard::{Access, Config, Cookies, Secret, TestSender, Tested};
use towpath_db::Database;
use towpath_db::event::RouteTest;
use towpath_route::webhook::{Client, send_test};
use towpath_streams::{Circuits, Store};

use crate::settings::Settings;
use crate::streams;

/// The dashboard's HTTP routes.
pub(crate) fn router(
    settings: &Settings,
    database: Database,
    store: Arc<dyn Store>,
    circuits: Circuits,
    shutdown: CancellationToken,
) -> anyhow::Result<Router> {
    let access = match &settings.admin_password {
        None => Access::Open,
        Some(admin) => Access::Guarded {
            admin: Secret::new(admin),
            viewer: settings.viewer_password.as_ref().map(Secret::new),
        },
    };
    let webhooks = Arc::new(Webhooks(Client::new(crate::route::reach(settings))?));
    let cookies = if streams::is_reached_by_tls(settings) { Cookies::Secure } else { Cookies::AsAsked };
    Ok(towpath_dashboard::router(Config { database, store, circuits, webhooks, access, cookies }, shutdown))
}

/// The client of routes, for the pages.
struct Webhooks(Client);

impl TestSender for Webhooks {
    fn send(&self, test: RouteTest) -> Pin<Box<dyn Future<Output = Tested> + Send + '_>> {
        Box::pin(async move {
            let report = send_test(&self.0, &test).await;
            Tested { outcome: report.outcome, failure: report.failure }
        })
    }
}
