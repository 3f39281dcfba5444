//! A publisher against subscribers that speak nanomsg's protocol by hand.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use notifications::{Address, Publisher};

/// Messages that may wait for each subscriber.
const WAITING: usize = 256;

const SUB: [u8; 8] = [0, b'S', b'P', 0, 0, 33, 0, 0];
const PUB: [u8; 8] = [0, b'S', b'P', 0, 0, 32, 0, 0];

/// Connects as a subscriber, and waits until the publisher knows.
fn greet(stream: &mut (impl Read + Write)) {
    stream.write_all(&SUB).expect("writes");
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).expect("answers");
    assert_eq!(answer, PUB);
}

fn bytes<const N: usize>(stream: &mut impl Read) -> [u8; N] {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).expect("reads");
    bytes
}

fn until(holds: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it never holds");
}

fn anyone(_client: SocketAddr, _server: SocketAddr) -> bool {
    true
}

/// A Unix socket does not ask.
fn nobody(_client: SocketAddr, _server: SocketAddr) -> bool {
    false
}

fn serving(
    address: &Address,
    admits: fn(SocketAddr, SocketAddr) -> bool,
) -> std::io::Result<Publisher> {
    let publisher = Publisher::listen(address, WAITING)?;
    publisher.serve(admits, || ())?;
    Ok(publisher)
}

/// A publisher on a free port, and its address.
fn on_tcp() -> (Publisher, SocketAddr) {
    let address = "tcp://127.0.0.1:0".parse().expect("valid");
    let publisher = serving(&address, anyone).expect("listens");
    let Address::Tcp(at) = *publisher.address() else {
        panic!("another address");
    };
    (publisher, at)
}

#[test]
fn all_subscribers_get_each_message_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("n.ipc");
    let ipc = serving(&Address::Ipc(path.clone()), nobody).expect("listens");
    let (tcp, at) = on_tcp();
    assert!(!ipc.has_subscribers());
    let mut unix = [(); 2].map(|()| UnixStream::connect(&path).expect("connects"));
    let mut stream = TcpStream::connect(at).expect("connects");
    unix.iter_mut().for_each(greet);
    greet(&mut stream);
    for text in ["one", "second"] {
        ipc.publish(text.as_bytes());
        tcp.publish(text.as_bytes());
    }
    for unix in &mut unix {
        assert_eq!(bytes(unix), [1, 0, 0, 0, 0, 0, 0, 0, 3, b'o', b'n', b'e']);
        assert_eq!(bytes(unix), *b"\x01\0\0\0\0\0\0\0\x06second");
    }
    assert_eq!(bytes(&mut stream), *b"\0\0\0\0\0\0\0\x03one");
    drop(unix);
    until(|| !ipc.has_subscribers());
    assert_eq!(ipc.lost(), 0);
    drop(ipc);
    assert!(!path.exists());
}

#[test]
fn a_client_is_a_subscriber_from_its_greeting_on() {
    let (publisher, at) = on_tcp();
    let mut silent = TcpStream::connect(at).expect("connects");
    silent.write_all(&SUB[..7]).expect("writes");
    // Connections are accepted in order, so the first one is by then.
    let mut second = TcpStream::connect(at).expect("connects");
    greet(&mut second);
    assert!(publisher.has_subscribers());
    drop(second);
    until(|| !publisher.has_subscribers());
    silent.write_all(&SUB[7..]).expect("writes");
    assert_eq!(bytes(&mut silent), PUB);
    assert!(publisher.has_subscribers());
}

#[test]
fn a_client_that_is_no_subscriber_is_disconnected() {
    let (publisher, at) = on_tcp();
    for first in [&b"GET / HTTP/1.1\r\n\r\n"[..], &PUB, &[0, b'S', b'P', 0]] {
        let mut stream = TcpStream::connect(at).expect("connects");
        stream.write_all(first).expect("writes");
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() <= 8, "{rest:?}");
    }
    until(|| !publisher.has_subscribers());
}

#[test]
fn clients_that_may_not_subscribe_and_those_beyond_the_limit_are_refused_and_counted() {
    let address = "tcp://127.0.0.1:0".parse().expect("valid");
    let strict = serving(&address, nobody).expect("listens");
    let Address::Tcp(at) = *strict.address() else {
        panic!("another address");
    };
    let mut refused = TcpStream::connect(at).expect("connects");
    // The publisher may have closed the connection already.
    let _ = refused.write_all(&SUB);
    let mut rest = Vec::new();
    let _ = refused.read_to_end(&mut rest);
    assert_eq!(rest, b"");
    assert!(!strict.has_subscribers());
    assert_eq!(strict.not_admitted(), 1);

    let (publisher, at) = on_tcp();
    let held: Vec<_> = (0..16)
        .map(|_| {
            let mut stream = TcpStream::connect(at).expect("connects");
            greet(&mut stream);
            stream
        })
        .collect();
    let mut one_more = TcpStream::connect(at).expect("connects");
    let _ = one_more.read_to_end(&mut rest);
    assert_eq!(rest, b"");
    assert_eq!((publisher.full(), publisher.not_admitted()), (1, 0));
    drop(held);
}

#[test]
fn a_subscriber_that_does_not_read_loses_messages_and_holds_up_nobody() {
    let (publisher, at) = on_tcp();
    let mut idle = TcpStream::connect(at).expect("connects");
    greet(&mut idle);
    let message = vec![0; 1 << 16];
    // More than the kernel's buffers and the queue hold.
    for _ in 0..1_000 {
        publisher.publish(&message);
    }
    assert!(publisher.lost() > 0);
}

#[test]
fn a_socket_that_was_left_behind_is_replaced_and_one_in_use_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("n.ipc");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("binds"));
    assert!(path.exists());
    let address = Address::Ipc(path.clone());
    let publisher = serving(&address, nobody).expect("replaces it");
    serving(&address, nobody).expect_err("it is in use");
    drop(publisher);
    std::fs::write(&path, "a file").expect("writes");
    serving(&address, nobody).expect_err("no socket is there");
    assert_eq!(std::fs::read(&path).expect("reads"), b"a file");
}
