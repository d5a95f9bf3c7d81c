//! Runs a command with one throwaway PostgreSQL for all the tests in it.

use std::process::ExitCode;

use towpath_testkit::database::{SERVER_VARIABLE, TestServer};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments.next().expect("usage: with-test-postgres COMMAND …");
    let server = TestServer::start().await;
    let command =
        tokio::process::Command::new(program).args(arguments).env(SERVER_VARIABLE, server.url()).status();
    // Ctrl-C reaches the command too; either way the server is stopped before we end.
    let status = tokio::select! {
        status = command => status.ok(),
        _ = tokio::signal::ctrl_c() => None,
    };
    server.stop().await;
    let code = status.and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(1))
}
