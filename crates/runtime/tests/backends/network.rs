//! Sockets.

use crate::{Scratch, on_every_backend, on_every_kernel_backend};
use runtime::net::{
    DetachedStream, ListenOptions, ReservedAddress, ReservedPath, TcpListener, TcpStream, UNIX_PATH_BYTES_MAX,
    UnixListener, UnixOptions,
};
use runtime::{Elapsed, ShardId, spawn, submit_async_to, timeout};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::time::Duration;

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(ANY_PORT, ListenOptions::default()).expect("a free port exists");
    let address = listener.local_addr().expect("a listener has an address");
    (listener, address)
}

async fn pair() -> (TcpStream, TcpStream) {
    let (listener, address) = listen();
    let client = spawn(TcpStream::connect(address));
    let server = listener.accept().await.expect("a client connects");
    (client.await.expect("the listener is there"), server)
}

/// Reads until the buffer has that many bytes or the stream ends.
async fn read_bytes(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count);
    while bytes.len() < count {
        let (read, back) = stream.read(bytes).await;
        bytes = back;
        if read.expect("the connection is up") == 0 {
            break;
        }
    }
    bytes
}

async fn echo(mut stream: TcpStream) {
    loop {
        let (read, buffer) = stream.read(Vec::with_capacity(4096)).await;
        if read.unwrap_or(0) == 0 {
            return;
        }
        let (written, _) = stream.write_all(buffer).await;
        if written.is_err() {
            return;
        }
    }
}

#[test]
fn an_echo_gives_back_what_many_clients_send() {
    on_every_backend(1, async |_| {
        let (listener, address) = listen();
        drop(spawn(async move {
            while let Ok(stream) = listener.accept().await {
                stream.set_nodelay(true).expect("TCP has the option");
                drop(spawn(echo(stream)));
            }
        }));
        let clients: Vec<_> = (0..20_u8)
            .map(|number| {
                spawn(async move {
                    let mut stream = TcpStream::connect(address).await.expect("the listener is there");
                    assert_eq!(stream.peer_addr().expect("it is connected"), address);
                    for round in 0..20_usize {
                        let message = vec![number; 1 + round * 500];
                        let (written, message) = stream.write_all(message).await;
                        written.expect("the connection is up");
                        assert!(
                            read_bytes(&mut stream, message.len()).await == message,
                            "the echo is not what was sent"
                        );
                    }
                })
            })
            .collect();
        for client in clients {
            client.await;
        }
    });
}

#[test]
fn a_large_write_waits_for_a_slow_reader_and_arrives_whole() {
    on_every_backend(1, async |_| {
        let (mut client, mut server) = pair().await;
        let sent: Vec<u8> = (0..20_000_000_u32).map(|position| (position % 253) as u8).collect();
        let expected = sent.clone();
        let writer = spawn(async move {
            let (written, _) = client.write_all(sent).await;
            written.expect("the connection is up");
            client.shutdown(Shutdown::Write).expect("the connection is up");
            client
        });
        assert!(
            read_bytes(&mut server, expected.len()).await == expected,
            "bytes were lost or mixed up"
        );
        let (read, _) = server.read(Vec::with_capacity(10)).await;
        assert_eq!(read.expect("the end is no error"), 0);
        drop(writer.await);
    });
}

#[test]
fn a_read_that_was_dropped_loses_no_byte() {
    on_every_backend(1, async |_| {
        let (mut client, mut server) = pair().await;
        for round in 0..20_u8 {
            assert_eq!(
                timeout(Duration::ZERO, server.read(Vec::with_capacity(100)))
                    .await
                    .err(),
                Some(Elapsed)
            );
            let (written, _) = client.write_all(vec![round; 50]).await;
            written.expect("the connection is up");
            // The dropped read may get all 50 bytes; the next reads have room for fewer.
            let mut got = Vec::new();
            while got.len() < 50 {
                let (read, bytes) = server.read(Vec::with_capacity(8)).await;
                assert!(read.expect("the connection is up") > 0, "the stream ended");
                got.extend(bytes);
            }
            assert_eq!(got, [round; 50]);
        }
    });
}

#[test]
fn an_accept_that_was_dropped_loses_no_connection() {
    on_every_backend(1, async |_| {
        let (listener, address) = listen();
        for _ in 0..5 {
            assert!(
                timeout(Duration::ZERO, listener.accept()).await.is_err(),
                "nobody has connected"
            );
            let _client = TcpStream::connect(address).await.expect("the listener is there");
            timeout(Duration::from_secs(30), listener.accept())
                .await
                .expect("the connection was lost")
                .expect("it is up");
        }
    });
}

#[test]
fn a_write_that_was_dropped_breaks_the_stream_instead_of_mixing_bytes() {
    on_every_backend(1, async |_| {
        let (mut client, server) = pair().await;
        // More than the buffers of the kernel hold, so the write stays in flight.
        assert!(
            timeout(Duration::from_millis(1), client.write_all(vec![0; 50_000_000]))
                .await
                .is_err()
        );
        let (written, _) = client.write_all(vec![1; 10]).await;
        assert_eq!(
            written.expect_err("it follows half a message").kind(),
            std::io::ErrorKind::BrokenPipe
        );
        drop(server);
    });
}

#[test]
fn the_two_halves_serve_two_tasks() {
    on_every_backend(1, async |_| {
        let (client, server) = pair().await;
        drop(spawn(echo(server)));
        let (mut read, mut write) = client.into_split();
        let writer = spawn(async move {
            for number in 0..100_u8 {
                let (written, _) = write.write_all(vec![number; 100]).await;
                written.expect("the connection is up");
            }
            write
        });
        let mut got = Vec::new();
        while got.len() < 10_000 {
            let (count, bytes) = read.read(Vec::with_capacity(777)).await;
            assert!(count.expect("the connection is up") > 0, "the stream ended");
            got.extend(bytes);
        }
        assert!(
            got.chunks(100)
                .enumerate()
                .all(|(number, chunk)| chunk.iter().all(|&byte| usize::from(byte) == number))
        );
        drop(writer.await);
    });
}

#[test]
fn a_closed_connection_ends_the_read_of_the_other_end() {
    on_every_backend(1, async |_| {
        let (client, mut server) = pair().await;
        let (read, write) = client.into_split();
        let reader = spawn(async move {
            let mut read = read;
            drop(timeout(Duration::from_millis(1), read.read(Vec::with_capacity(10))).await);
        });
        reader.await;
        drop(write);
        let (count, _) = timeout(Duration::from_secs(30), server.read(Vec::with_capacity(10)))
            .await
            .expect("it was never closed");
        assert_eq!(count.unwrap_or(0), 0);
    });
}

#[test]
fn a_connection_moves_to_another_shard_with_what_it_has_received() {
    on_every_backend(2, async |own| {
        if own == ShardId(1) {
            return;
        }
        for start_a_read in [false, true] {
            let (mut client, mut server) = pair().await;
            if start_a_read {
                assert!(
                    timeout(Duration::ZERO, server.read(Vec::with_capacity(1000)))
                        .await
                        .is_err()
                );
            }
            let (written, _) = client.write_all(b"before ".to_vec()).await;
            written.expect("the connection is up");
            let detached: DetachedStream = server.detach();
            let served = submit_async_to(ShardId(1), move || async move {
                let mut stream = detached.attach();
                let request = read_bytes(&mut stream, 12).await;
                let (written, _) = stream.write_all(b"answer".to_vec()).await;
                written.expect("the connection is up");
                request
            });
            let (written, _) = client.write_all(b"after".to_vec()).await;
            written.expect("the connection is up");
            assert_eq!(read_bytes(&mut client, 6).await, b"answer");
            assert_eq!(
                served.await,
                b"before after",
                "bytes were lost on the way to the other shard"
            );
        }
    });
}

#[test]
fn connecting_to_nobody_and_binding_twice_are_errors() {
    on_every_backend(1, async |_| {
        let (listener, address) = listen();
        let second = TcpListener::bind(address, ListenOptions::default()).err();
        assert_eq!(second.map(|error| error.kind()), Some(std::io::ErrorKind::AddrInUse));
        drop(listener);
        let refused = TcpStream::connect(address).await.err().map(|error| error.kind());
        assert_eq!(
            refused,
            Some(std::io::ErrorKind::ConnectionRefused),
            "somebody listens at a closed port"
        );
    });
}

#[test]
fn a_reserved_address_refuses_until_it_is_listened_at() {
    on_every_backend(1, async |_| {
        let reserve = |address| ReservedAddress::bind(address, ListenOptions::default()).expect("nobody listens there");
        let reserved = reserve(ANY_PORT);
        let address = reserved.local_addr().expect("a reserved address is known");
        let early = TcpStream::connect(address).await.err().map(|error| error.kind());
        assert_eq!(
            early,
            Some(std::io::ErrorKind::ConnectionRefused),
            "a client came in before the door was open"
        );
        let late = reserve(address);
        let listener = reserved.listen().expect("nobody listens there");
        let client = spawn(TcpStream::connect(address));
        listener.accept().await.expect("a client connects");
        client.await.expect("the door is open");
        let second = late.listen().err().map(|error| error.kind());
        assert_eq!(
            second,
            Some(std::io::ErrorKind::AddrInUse),
            "two listen who do not share"
        );
    });
}

#[test]
fn shards_share_a_port_when_told_so() {
    on_every_backend(1, async |_| {
        let options = ListenOptions {
            reuse_port: true,
            ..ListenOptions::default()
        };
        let first = TcpListener::bind(ANY_PORT, options).expect("a free port exists");
        let address = first.local_addr().expect("a listener has an address");
        let second = TcpListener::bind(address, options).expect("the port is shared");
        drop(first);
        let client = spawn(TcpStream::connect(address));
        second.accept().await.expect("a client connects");
        client.await.expect("the second listener is there");
    });
}

fn for_operators() -> UnixOptions {
    UnixOptions {
        mode: 0o660,
        group: None,
        backlog: 16,
    }
}

#[test]
fn a_path_is_listened_at_by_one_and_removed_with_the_listener() {
    use std::os::unix::fs::PermissionsExt;
    on_every_kernel_backend(1, async |_| {
        let dir = Scratch::new("one");
        let path = dir.path("s");
        let reserved = ReservedPath::bind(&path, &for_operators()).expect("the path is free");
        let early = TcpStream::connect_unix(&path).err().map(|error| error.kind());
        assert_eq!(
            early,
            Some(std::io::ErrorKind::ConnectionRefused),
            "a client came in before the door was open"
        );
        let listener = reserved.listen().expect("the path is taken");
        assert_eq!(listener.path(), path);
        let mode = std::fs::metadata(&path)
            .expect("the socket has a file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o660);
        let mut client = TcpStream::connect_unix(&path).expect("somebody listens");
        drop(spawn(echo(listener.accept().await.expect("a client has connected"))));
        let (written, _) = client.write_all(vec![7; 100_000]).await;
        written.expect("the connection is up");
        assert_eq!(read_bytes(&mut client, 100_000).await, vec![7; 100_000]);
        assert!(client.peer_addr().is_err(), "a path is no address");
        let second = UnixListener::bind(&path, &for_operators())
            .err()
            .map(|error| error.kind());
        assert_eq!(second, Some(std::io::ErrorKind::AddrInUse), "two listen at one path");
        drop(listener);
        assert!(!path.exists(), "the socket is left behind");
        UnixListener::bind(&path, &for_operators()).expect("the path is free again");
    });
}

#[test]
fn the_socket_of_a_dead_process_is_replaced_and_another_file_is_not() {
    on_every_kernel_backend(1, async |_| {
        let dir = Scratch::new("stale");
        let path = dir.path("s");
        // As a process that was killed leaves it.
        drop(std::os::unix::net::UnixListener::bind(&path).expect("the path is free"));
        assert!(path.exists());
        let listener = UnixListener::bind(&path, &for_operators()).expect("nobody listens there");
        TcpStream::connect_unix(&path).expect("the new one listens");
        // A file that replaced the socket's file is not the listener's to remove.
        std::fs::remove_file(&path).expect("the file of the socket");
        runtime::fs::write(&path, b"text").expect("a file");
        drop(listener);
        assert!(path.exists(), "a file of another was removed");
        let refused = UnixListener::bind(&path, &for_operators())
            .err()
            .map(|error| error.kind());
        assert_eq!(refused, Some(std::io::ErrorKind::AlreadyExists), "a file was replaced");
        assert!(path.exists(), "a file of another was removed");
    });
}

#[test]
fn a_path_that_is_too_long_and_a_group_that_is_none_are_refused() {
    on_every_kernel_backend(1, async |_| {
        let dir = Scratch::new("bad");
        let bind = |path: &std::path::Path, options: &UnixOptions| UnixListener::bind(path, options).err();
        let long = dir.path(&"x".repeat(UNIX_PATH_BYTES_MAX));
        let error = bind(&long, &for_operators()).expect("no kernel takes such a path");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
        let nobodies = UnixOptions {
            group: Some("no such group here".to_owned()),
            ..for_operators()
        };
        let path = dir.path("s");
        let error = bind(&path, &nobodies).expect("there is no such group");
        assert_eq!(error.to_string(), "there is no group 'no such group here'");
        assert!(!path.exists(), "a socket was left that anyone may use");
        let root = UnixOptions {
            group: Some("root".to_owned()),
            ..for_operators()
        };
        // Only root may give a file to any group.
        if let Some(error) = bind(&path, &root) {
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
            assert!(!path.exists(), "a socket was left that the group may not use");
        }
    });
}
