//! The dashboard, as the settings describe it.

use std::sync::Arc;

use axum::Router;
use tokio_util::sync::CancellationToken;
use towpath_dashboard::{Access, Config, Secret};
use towpath_db::Database;
use towpath_streams::Store;

use crate::settings::Settings;

/// Its routes.
pub(crate) fn router(
    settings: &Settings,
    database: Database,
    store: Arc<dyn Store>,
    shutdown: CancellationToken,
) -> Router {
    let access = match &settings.admin_password {
        None => Access::Open,
        Some(admin) => Access::Guarded {
            admin: Secret::new(admin),
            viewer: settings.viewer_password.as_ref().map(Secret::new),
        },
    };
    towpath_dashboard::router(Config { database, store, access }, shutdown)
}
