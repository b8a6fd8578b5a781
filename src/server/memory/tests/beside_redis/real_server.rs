//! A private Redis server for a test.

use redis::{Cmd, Connection, Value};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const MISSING: &str = "the differential tests need a Redis server on PATH (Debian: apt-get install \
                       redis-server; macOS: brew install redis), or HOLDFAST_REDIS_SERVER naming one";

/// Ends with the test.
pub(super) struct RealServer {
    process: Child,
    directory: PathBuf,
    port: u16,
    connection: Connection,
}

impl RealServer {
    /// Starts one on a free loopback port.
    pub(super) fn start() -> Self {
        // Another process may take the port before the server does.
        (0..5).find_map(|_| Self::start_once()).expect("a server that starts")
    }

    fn start_once() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let name = format!("holdfast-{}-{port}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let mut process = spawn(port, &directory);
        let Some(connection) = wait_for(port, &mut process) else {
            end(&mut process, &directory);
            return None;
        };
        Some(Self { process, directory, port, connection })
    }

    /// Another connection to it.
    pub(super) fn connect(&self) -> Connection {
        client(self.port).get_connection().unwrap()
    }

    /// Runs one command and returns the answer, an error included.
    pub(super) fn run(&mut self, parts: &[&[u8]]) -> Value {
        let [value] = self.run_all([parts]);
        value
    }

    /// Runs commands without a pause between them.
    pub(super) fn run_all<const N: usize>(&mut self, commands: [&[&[u8]]; N]) -> [Value; N] {
        let mut packed = Vec::new();
        for parts in commands {
            let mut command = Cmd::new();
            for part in parts {
                command.arg(*part);
            }
            command.write_packed_command(&mut packed);
        }
        self.connection.send_packed_command(&packed).unwrap();
        commands.map(|_| self.connection.recv_response().unwrap())
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        end(&mut self.process, &self.directory);
    }
}

fn client(port: u16) -> redis::Client {
    redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap()
}

fn spawn(port: u16, directory: &PathBuf) -> Child {
    let program = std::env::var("HOLDFAST_REDIS_SERVER");
    let mut command = Command::new(program.as_deref().unwrap_or("redis-server"));
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
    command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(directory);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| {
        let _ = std::fs::remove_dir_all(directory);
        panic!("{error}: {MISSING}")
    })
}

/// None if the server ended, or is not ready after ten seconds.
fn wait_for(port: u16, process: &mut Child) -> Option<Connection> {
    let client = client(port);
    for _ in 0..500 {
        if let Ok(connection) = client.get_connection() {
            return Some(connection);
        }
        if process.try_wait().unwrap().is_some() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

fn end(process: &mut Child, directory: &PathBuf) {
    // The server may have ended by itself, and its directory may be empty.
    let _ = process.kill();
    let _ = process.wait();
    let _ = std::fs::remove_dir_all(directory);
}
