//! Explains the lack of a free file descriptor: without one nothing can be opened, no connection either.

use socket2::{Domain, Socket, Type};
use std::io;

#[cfg(unix)]
mod codes {
    use rustix::io::Errno;

    pub(super) const OF_PROCESS: i32 = Errno::MFILE.raw_os_error();
    pub(super) const OF_SYSTEM: i32 = Errno::NFILE.raw_os_error();
}
#[cfg(windows)]
mod codes {
    /// `WSAEMFILE`
    pub(super) const OF_PROCESS: i32 = 10024;
    /// `ERROR_TOO_MANY_OPEN_FILES`
    pub(super) const OF_SYSTEM: i32 = 4;
}

/// Adds the remedy to an error of opening something, if descriptors are what is missing.
pub(crate) fn explained(error: io::Error) -> io::Error {
    let what = match error.raw_os_error() {
        Some(codes::OF_PROCESS) => OF_PROCESS,
        Some(codes::OF_SYSTEM) => OF_SYSTEM,
        _ => return error,
    };
    io::Error::new(error.kind(), what)
}

/// The same for an error of resolving a name: a resolver that can open nothing says that it does not know the name.
pub(super) fn explained_for_name(error: io::Error) -> io::Error {
    match Socket::new(Domain::IPV4, Type::DGRAM, None).map_err(explained) {
        Err(missing) if missing.raw_os_error().is_none() => missing,
        _ => error,
    }
}

const OF_PROCESS: &str = "this process has no free file descriptor (EMFILE): raise its limit (`ulimit -n`, \
LimitNOFILE of a systemd unit), or close the files and sockets that it leaves open";

const OF_SYSTEM: &str = "this system has no free file descriptor (ENFILE): raise its limit (sysctl fs.file-max), or \
end the process that leaves files and sockets open";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_descriptors_is_explained_by_one() {
        for (code, text) in [(codes::OF_PROCESS, OF_PROCESS), (codes::OF_SYSTEM, OF_SYSTEM)] {
            let error = io::Error::from_raw_os_error(code);
            assert_eq!(explained(error).to_string(), text);
        }
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(explained(refused()).to_string(), refused().to_string());
        let unknown = || io::Error::other("no such host");
        assert_eq!(explained_for_name(unknown()).to_string(), "no such host");
    }
}
