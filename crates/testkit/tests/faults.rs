//! The fault tools do what they say: each fault of the proxy, each signal of the victim. Where time
//! is the claim, only its lower bound is measured.

use std::io::{ErrorKind, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::time::timeout;
use towpath_testkit::proxy::{Direction, Fault, FaultProxy};
use towpath_testkit::victim::Victim;

const DEADLINE: Duration = Duration::from_secs(30);

/// A client and a server joined by the proxy, each in the hands of the test.
struct Joined {
    listener: TcpListener,
    proxy: FaultProxy,
    client: TcpStream,
    server: TcpStream,
}

impl Joined {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = FaultProxy::start(listener.local_addr().unwrap()).await;
        let (client, server) = join(&proxy, &listener).await;
        Self { listener, proxy, client, server }
    }
}

async fn join(proxy: &FaultProxy, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(proxy.addr()).await.unwrap();
    (client, within(listener.accept()).await.unwrap().0)
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.expect("the test waits for something that does not come")
}

async fn expect(stream: &mut TcpStream, bytes: &[u8]) {
    let mut got = vec![0; bytes.len()];
    within(stream.read_exact(&mut got)).await.unwrap();
    assert_eq!(got, bytes);
}

async fn passes(from: &mut (impl AsyncWrite + Unpin), to: &mut TcpStream, bytes: &[u8]) {
    from.write_all(bytes).await.unwrap();
    expect(to, bytes).await;
}

async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut got = Vec::new();
    within(stream.read_to_end(&mut got)).await.unwrap();
    got
}

#[tokio::test]
async fn without_a_fault_bytes_and_ends_pass_and_are_counted() {
    let mut t = Joined::new().await;
    t.client.write_all(b"request").await.unwrap();
    t.client.shutdown().await.unwrap();
    assert_eq!(rest(&mut t.server).await, b"request");
    t.server.write_all(b"answer").await.unwrap();
    drop(t.server);
    assert_eq!(rest(&mut t.client).await, b"answer");
    t.proxy.wait_connections(0).await;
    assert_eq!((t.proxy.passed(Direction::ToUpstream), t.proxy.passed(Direction::ToClient)), (7, 6));
}

#[tokio::test]
async fn unix_socket_upstream_is_reached() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("upstream");
    let listener = UnixListener::bind(&path).unwrap();
    let proxy = FaultProxy::start(path.as_path()).await;
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    let (mut server, _) = within(listener.accept()).await.unwrap();
    passes(&mut server, &mut client, b"hello").await;
    proxy.cut();
    assert_eq!(rest(&mut client).await, b"");
    assert_eq!(within(server.read(&mut [0])).await.unwrap(), 0);
}

#[tokio::test]
async fn delay_holds_one_direction_for_at_least_its_time() {
    let mut t = Joined::new().await;
    let delay = Duration::from_millis(50);
    t.proxy.set_on(Direction::ToClient, Fault::Delay(delay));
    let sent = Instant::now();
    t.server.write_all(b"late").await.unwrap();
    passes(&mut t.client, &mut t.server, b"prompt").await;
    expect(&mut t.client, b"late").await;
    assert!(sent.elapsed() >= delay);
}

#[tokio::test]
async fn slow_passes_all_bytes_in_small_pieces() {
    let mut t = Joined::new().await;
    let pause = Duration::from_millis(2);
    t.proxy.set(Fault::Slow { chunk_bytes: 3, pause });
    let sent = Instant::now();
    passes(&mut t.server, &mut t.client, b"ten bytes.").await;
    assert!(sent.elapsed() >= pause * 4);
}

#[tokio::test]
async fn stall_accepts_and_lets_nothing_pass_until_it_is_lifted() {
    let mut t = Joined::new().await;
    t.proxy.set_on(Direction::ToUpstream, Fault::Stall);
    (t.client, t.server) = join(&t.proxy, &t.listener).await;
    t.proxy.wait_arrivals(2).await;
    t.client.write_all(b"held").await.unwrap();
    // A round trip the other way gives the held bytes their chance to slip through.
    passes(&mut t.server, &mut t.client, b"free").await;
    assert_eq!(t.proxy.passed(Direction::ToUpstream), 0);
    t.proxy.set(Fault::Pass);
    expect(&mut t.server, b"held").await;
}

#[tokio::test]
async fn cut_is_an_orderly_end_for_both_sides_even_over_unread_bytes() {
    let mut t = Joined::new().await;
    t.proxy.set(Fault::Stall);
    t.client.write_all(&[7; 100_000]).await.unwrap();
    t.proxy.cut();
    assert_eq!(rest(&mut t.client).await, b"");
    assert_eq!(rest(&mut t.server).await, b"");
    t.proxy.wait_connections(0).await;
}

#[tokio::test]
async fn reset_gives_both_sides_connection_reset() {
    let t = Joined::new().await;
    t.proxy.reset();
    for mut side in [t.client, t.server] {
        assert_eq!(within(side.read(&mut [0])).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn new_connections_work_after_a_reset_a_cut_and_a_half_close() {
    let t = Joined::new().await;
    t.proxy.reset();
    t.proxy.cut();
    t.proxy.half_close(Direction::ToClient);
    let (mut client, mut server) = join(&t.proxy, &t.listener).await;
    passes(&mut server, &mut client, b"again").await;
}

#[tokio::test]
async fn half_close_ends_one_direction_and_keeps_the_other() {
    let mut t = Joined::new().await;
    t.proxy.half_close(Direction::ToClient);
    t.server.write_all(b"into the void").await.unwrap();
    assert_eq!(rest(&mut t.client).await, b"");
    passes(&mut t.client, &mut t.server, b"still here").await;
    assert_eq!((t.proxy.connections(), t.proxy.passed(Direction::ToClient)), (1, 0));
}

#[tokio::test]
async fn refuse_closes_new_connections_and_keeps_open_ones() {
    let mut t = Joined::new().await;
    t.proxy.set(Fault::Refuse);
    let mut refused = TcpStream::connect(t.proxy.addr()).await.unwrap();
    assert_eq!(rest(&mut refused).await, b"");
    passes(&mut t.client, &mut t.server, b"old").await;
    assert_eq!((t.proxy.connections(), t.proxy.arrivals()), (1, 2));
}

#[tokio::test]
async fn cut_after_delivers_exactly_its_bytes_once() {
    let mut t = Joined::new().await;
    t.proxy.cut_after(Direction::ToClient, 40_001);
    let answer: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
    // The write may fail once the proxy is gone; what arrived is the claim.
    let _ = within(t.server.write_all(&answer)).await;
    assert_eq!(rest(&mut t.client).await, answer[..40_001]);
    assert_eq!(t.proxy.passed(Direction::ToClient), 40_001);
    let (mut client, mut server) = join(&t.proxy, &t.listener).await;
    passes(&mut server, &mut client, b"whole").await;
}

#[tokio::test]
async fn cut_after_nothing_loses_the_answer_but_not_the_request() {
    let mut t = Joined::new().await;
    t.proxy.cut_after(Direction::ToClient, 0);
    passes(&mut t.client, &mut t.server, b"commit").await;
    t.server.write_all(b"done").await.unwrap();
    assert_eq!(rest(&mut t.client).await, b"");
}

#[tokio::test]
async fn dropped_proxy_closes_its_connections() {
    let mut t = Joined::new().await;
    drop(t.proxy);
    assert_eq!(rest(&mut t.client).await, b"");
    assert_eq!(rest(&mut t.server).await, b"");
}

/// A shell that runs `script` and ends with its input, so it outlives no test.
fn shell(script: &str) -> (Command, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::from(reader));
    (command, writer)
}

const ECHO: &str = r#"echo ready; while read -r word; do echo "got $word"; done"#;

#[tokio::test]
async fn victim_dies_on_its_line_by_sigkill() {
    let (command, _input) = shell("echo first >&2; echo the second; read -r word; echo third");
    let mut victim = Victim::spawn(command);
    assert_eq!(victim.kill_on_line("second").await, "the second");
    assert_eq!(victim.wait_exit().await.signal(), Some(9));
    victim.wait_for_line("first").await;
    assert!(!victim.lines().contains(&"third".to_owned()));
}

#[tokio::test]
async fn victim_dies_at_the_moment_chosen_by_a_future() {
    let mut t = Joined::new().await;
    let (command, _input) = shell(ECHO);
    let mut victim = Victim::spawn(command);
    t.client.write_all(b"now").await.unwrap();
    victim.kill_when(t.proxy.wait_passed(Direction::ToUpstream, 3)).await;
    assert_eq!(victim.wait_exit().await.signal(), Some(9));
}

#[tokio::test]
async fn terminate_and_interrupt_send_their_signals() {
    for (send, number) in [(Victim::terminate as fn(&Victim), 15), (Victim::interrupt, 2)] {
        let (command, _input) = shell(ECHO);
        let mut victim = Victim::spawn(command);
        victim.wait_for_line("ready").await;
        send(&victim);
        assert_eq!(victim.wait_exit().await.signal(), Some(number));
    }
}

/// A second process starts later and answers the same input, so the paused process had its time.
#[tokio::test]
async fn paused_process_makes_no_progress_until_resumed() {
    let (command, mut input) = shell(ECHO);
    let victim = Victim::spawn(command);
    victim.wait_for_line("ready").await;
    victim.pause();
    let mark = victim.mark();
    input.write_all(b"word\n").unwrap();
    let (command, mut second_input) = shell(ECHO);
    second_input.write_all(b"word\n").unwrap();
    Victim::spawn(command).wait_for_line("got word").await;
    assert_eq!(victim.lines(), ["ready"]);
    victim.resume();
    victim.wait_for_line_after(mark, "got word").await;
}

#[tokio::test]
async fn process_that_ends_by_itself_gives_its_status_and_last_words() {
    let (command, _input) = shell("printf 'no newline'; exit 3");
    let mut victim = Victim::spawn(command);
    assert_eq!(victim.wait_exit().await.code(), Some(3));
    assert_eq!(victim.lines(), ["no newline"]);
    victim.terminate(); // A reaped process is left alone.
}

#[tokio::test]
#[should_panic(expected = "    what it did say")]
async fn missing_line_fails_with_the_output() {
    let (command, _input) = shell("echo what it did say; read -r word");
    let victim = Victim::spawn(command);
    victim.wait_for_line("did say").await;
    victim.with_deadline(Duration::from_millis(1)).wait_for_line("something else").await;
}

#[tokio::test]
async fn history_keeps_the_newest_lines() {
    let (command, _input) = shell("seq 5000; echo end");
    let victim = Victim::spawn(command);
    victim.wait_for_line("end").await;
    assert_eq!((victim.lines().len(), victim.lines()[0].as_str()), (4096, "906"));
}

/// Both processes hold the write end, so its end of file says that both are gone.
#[tokio::test]
async fn dropped_victim_takes_its_group_along() {
    let (writer, mut reader) = tokio::net::unix::pipe::pipe().unwrap();
    let (mut command, _input) = shell("exec 3>&0; sleep 60 & echo ready; wait");
    command.stdin(Stdio::from(writer.into_blocking_fd().unwrap()));
    let victim = Victim::spawn_group(command);
    victim.wait_for_line("ready").await;
    drop(victim);
    assert_eq!(within(reader.read(&mut [0])).await.unwrap(), 0);
}
