//! The test vectors of the client address, by their number.

use http::Request;

use super::*;

const XFF: &str = "x-forwarded-for";
const FWD: &str = "forwarded";
const ONE: &str = "x-real-ip";

/// A request from `peer` with these lines of the header `name`.
fn request(peer: Option<&str>, name: &str, lines: &[&str]) -> Request<()> {
    let mut request = Request::get("/");
    for line in lines {
        request = request.header(name, *line);
    }
    let mut request = request.body(()).unwrap();
    if let Some(peer) = peer {
        let peer: IpAddr = peer.parse().unwrap();
        request.extensions_mut().insert(SocketAddr::from((peer, 4711)));
    }
    request
}

fn reading(name: &str) -> ClientIp {
    match name {
        XFF => ClientIp::new().x_forwarded_for(),
        FWD => ClientIp::new().forwarded(),
        _ => ClientIp::new().header(name),
    }
}

/// The client of a request through a proxy at 10.0.0.1, with 10.0.0.0/8 trusted: `U@x` is somebody
/// unresolved behind x.
fn client(name: &str, lines: &[&str]) -> String {
    from("10.0.0.1", &reading(name).trusted_proxies(["10.0.0.0/8"]), name, lines)
}

fn from(peer: &str, settings: &ClientIp, name: &str, lines: &[&str]) -> String {
    settings.validate().unwrap();
    let request = request(Some(peer), name, lines);
    let head = Head::of(&request);
    let Some(peer) = settings.peer(&head) else { return "-".to_owned() };
    match settings.client(&head, peer) {
        Client::Known(address) => address.to_string(),
        Client::Unresolved(address) => format!("U@{address}"),
    }
}

/// The network of the key, under the default prefix.
fn network(client: &str) -> IpAddr {
    let settings = ClientIp::new();
    let key = settings.key_of(client.parse().unwrap());
    let mut octets = [0; 16];
    match key.as_bytes() {
        [KNOWN_V4, rest @ ..] => IpAddr::from(<[u8; 4]>::try_from(rest).unwrap()),
        [KNOWN_V6, rest @ ..] => {
            octets[..rest.len()].copy_from_slice(rest);
            IpAddr::from(octets)
        }
        other => panic!("no address: {other:?}"),
    }
}

#[test]
fn x_forwarded_for_behind_trusted_networks() {
    for (vector, lines, expected) in [
        (2, &["203.0.113.7"][..], "203.0.113.7"),
        (3, &["1.1.1.1, 203.0.113.7"], "203.0.113.7"),
        (5, &["1.1.1.1", "203.0.113.7"], "203.0.113.7"),
        (6, &["10.9.9.9, 203.0.113.7"], "203.0.113.7"),
        (7, &["10.1.1.1, 10.2.2.2"], "10.1.1.1"),
        (8, &[], "U@10.0.0.1"),
        (9, &[""], "U@10.0.0.1"),
        (10, &["1.1.1.1,, 203.0.113.7 ,"], "203.0.113.7"),
        (11, &["203.0.113.7:52814"], "203.0.113.7"),
        (12, &["2001:db8:1:2:3::9"], "2001:db8:1:2:3::9"),
        (13, &["[2001:db8:1:2::1]:443"], "2001:db8:1:2::1"),
        (14, &["2001:db8:1:2::1:443"], "2001:db8:1:2::1:443"),
        (15, &["2001:db8:1:2:3:4:5:6:443"], "U@10.0.0.1"),
        (16, &["::ffff:203.0.113.7"], "203.0.113.7"),
        (19, &["203.0.113.7, foo"], "U@10.0.0.1"),
        (20, &["\"<script>, ;;, 203.0.113.7"], "203.0.113.7"),
        (21, &["unknown"], "U@10.0.0.1"),
        (22, &["203.0.113.007"], "U@10.0.0.1"),
        (22, &["127.1"], "U@10.0.0.1"),
        (22, &["0x7f.0.0.1"], "U@10.0.0.1"),
        (23, &["0.0.0.0"], "U@10.0.0.1"),
        (24, &["fe80::1%eth0"], "U@10.0.0.1"),
        (34, &["1.1.1.1, 10.9.9.9"], "1.1.1.1"),
        (43, &["\"203.0.113.7\""], "U@10.0.0.1"),
    ] {
        assert_eq!(client(XFF, lines), expected, "vector {vector}");
    }
    for vector in ["2001:db8:1:2:3::9", "2001:db8:1:2::1", "2001:db8:1:2::1:443"] {
        assert_eq!(network(vector).to_string(), "2001:db8:1:2::", "vectors 12 to 14");
    }
}

#[test]
fn x_forwarded_for_with_other_peers_and_trust() {
    let one = &["203.0.113.7"];
    // 1: no trust, no header.
    assert_eq!(from("203.0.113.7", &ClientIp::new(), XFF, &["1.1.1.1"]), "203.0.113.7");
    let trusting = |networks: &[&str]| reading(XFF).trusted_proxies(networks);
    let default = trusting(&["10.0.0.0/8"]);
    assert_eq!(from("203.0.113.7", &default, XFF, &["1.1.1.1"]), "203.0.113.7");
    // 4
    let two = trusting(&["10.0.0.0/8", "192.0.2.0/24"]);
    let lines = &["1.1.1.1, 203.0.113.7, 192.0.2.10"];
    assert_eq!(from("10.0.0.1", &two, XFF, lines), "203.0.113.7");
    // 17, 18
    assert_eq!(from("::ffff:10.0.0.1", &default, XFF, one), "203.0.113.7");
    assert_eq!(from("10.0.0.1", &trusting(&["::ffff:10.0.0.0/104"]), XFF, one), "203.0.113.7");
    // 41
    let v6 = trusting(&["fd00::/8"]);
    for line in ["2001:db8:aaaa:bbbb:1::1", "2001:db8:aaaa:bbbb:ffff::9"] {
        let client = from("fd00::5", &v6, XFF, &[line]);
        assert_eq!(network(&client).to_string(), "2001:db8:aaaa:bbbb::");
    }
    // 42
    let request = request(Some("10.0.0.1"), FWD, &["for=1.1.1.1"]);
    let proxy = "10.0.0.1".parse().unwrap();
    let client = trusting(&["10.0.0.0/8"]).client(&Head::of(&request), proxy);
    assert_eq!(client, Client::Unresolved(proxy));
}

#[test]
fn hops_are_counted_from_the_right_and_never_clamped() {
    let hops = |n| reading(XFF).trusted_hops(n);
    // 25 to 27
    assert_eq!(from("10.0.0.1", &hops(1), XFF, &["1.1.1.1, 203.0.113.7"]), "203.0.113.7");
    let lines = &["1.1.1.1, 203.0.113.7, 192.0.2.80"];
    assert_eq!(from("10.0.0.1", &hops(2), XFF, lines), "203.0.113.7");
    assert_eq!(from("203.0.113.7", &hops(2), XFF, &["1.1.1.1"]), "U@203.0.113.7");
    assert_eq!(from("10.0.0.1", &hops(2), XFF, &["1.1.1.1, junk, 9.9.9.9"]), "U@10.0.0.1");
}

#[test]
fn forwarded_behind_trusted_networks() {
    for (vector, lines, expected) in [
        (28, &["for=203.0.113.7;proto=https;by=10.0.0.1"][..], "203.0.113.7"),
        (29, &["For=\"[2001:db8:cafe::17]:4711\""], "2001:db8:cafe::17"),
        (30, &["for=1.1.1.1,for=203.0.113.7;proto=http"], "203.0.113.7"),
        (31, &["for=1.1.1.1", "for=203.0.113.7"], "203.0.113.7"),
        (32, &["for=_hidden, for=_SEVKISEK"], "U@10.0.0.1"),
        (32, &["for=unknown"], "U@10.0.0.1"),
        (32, &["proto=https"], "U@10.0.0.1"),
        (33, &["for=\"1.1.1.1, for=9.9.9.9\", for=203.0.113.7"], "203.0.113.7"),
        (35, &["for=\"evil, for=\"[2001:db8:1:2::1]\""], "2001:db8:1:2::1"),
        (36, &["for=\"x\\, for=\"[2001:db8:1:2::1]\""], "2001:db8:1:2::1"),
        (37, &["for=1.1.1.1;for=203.0.113.7"], "U@10.0.0.1"),
        (38, &["for=\"203.0.113\\.7\""], "203.0.113.7"),
        (38, &["for=\"203.0.113.7:_x1\""], "203.0.113.7"),
    ] {
        assert_eq!(client(FWD, lines), expected, "vector {vector}");
    }
    assert_eq!(network("2001:db8:cafe::17").to_string(), "2001:db8:cafe::", "vector 29");
}

#[test]
fn broken_elements_do_not_resolve() {
    for element in [
        "for",
        "for=",
        "for=\"",
        "for=\"1.1.1.1",
        "for=1.1.1.1\"",
        "for=\"1.1.1.1\"x",
        "for=\"\\\"",
        "for=\"1.1.1.1:_\"",
        "for=1.1.1.1;junk",
        "=1.1.1.1",
        "for =1.1.1.1",
        "for=[::1",
        "for=0.0.0.0",
        "for=\"[2001:db8::1]443\"",
        "for=1.1.1.1:123456",
        "\\",
        "\"",
    ] {
        assert_eq!(client(FWD, &[element]), "U@10.0.0.1", "{element}");
    }
    // Empty pairs are none, and a colon without quotes is forgiven.
    assert_eq!(client(FWD, &[";for=1.1.1.1; ;proto=http;"]), "1.1.1.1");
    assert_eq!(client(FWD, &["for=1.1.1.1:80"]), "1.1.1.1");
}

#[test]
fn a_single_value_counts_if_a_trusted_proxy_sent_exactly_one() {
    let trusting = || reading(ONE).trusted_proxies(["10.0.0.0/8"]);
    // 39, 40
    assert_eq!(client(ONE, &["203.0.113.7"]), "203.0.113.7");
    assert_eq!(from("203.0.113.7", &trusting(), ONE, &["1.1.1.1"]), "203.0.113.7");
    assert_eq!(client(ONE, &["1.1.1.1, 203.0.113.7"]), "U@10.0.0.1");
    assert_eq!(client(ONE, &["1.1.1.1", "203.0.113.7"]), "U@10.0.0.1");
    assert_eq!(client(ONE, &[]), "U@10.0.0.1");
    assert_eq!(from("10.0.0.1", &reading(ONE).trusted_hops(1), ONE, &["1.1.1.1"]), "1.1.1.1");
}

#[test]
fn known_unresolved_and_unconnected_are_apart() {
    let settings = reading(XFF).trusted_proxies(["10.0.0.0/8"]);
    let address = "10.0.0.1".parse().unwrap();
    let known = settings.key_of(address);
    let unresolved = request(Some("10.0.0.1"), XFF, &[]);
    let unresolved = settings.bytes(&Head::of(&unresolved));
    // Without a peer nothing is believed.
    let unconnected = request(None, XFF, &["203.0.113.7"]);
    let unconnected = settings.bytes(&Head::of(&unconnected));
    assert_ne!(known.as_bytes(), unresolved.as_slice());
    assert_eq!(known.as_bytes()[1..], unresolved.as_slice()[1..]);
    assert_eq!(unconnected.as_slice(), [UNCONNECTED]);
    let direct = request(Some("::ffff:10.0.0.1"), XFF, &[]);
    assert_eq!(ClientIp::new().bytes(&Head::of(&direct)).as_slice(), known.as_bytes());
}

#[test]
fn prefixes_cut_ipv6_alone() {
    let one: IpAddr = "2001:db8:1:2:3:4:5:6".parse().unwrap();
    for (bits, len) in [(32, 9), (48, 9), (64, 9), (65, 17), (128, 17)] {
        let settings = ClientIp::new().ipv6_prefix(bits);
        assert_eq!(settings.key_of(one).as_bytes().len(), len);
        assert_eq!(settings.key_of("192.0.2.1".parse().unwrap()).as_bytes(), [1, 192, 0, 2, 1]);
    }
    let exact = ClientIp::new().ipv6_prefix(128);
    assert_ne!(exact.key_of(one), exact.key_of("2001:db8:1:2:3:4:5:7".parse().unwrap()));
}

#[test]
fn long_lists_end_after_32_hops() {
    let trusted = vec!["10.1.1.1"; 32].join(", ");
    assert_eq!(client(XFF, &[&trusted]), "10.1.1.1");
    assert_eq!(client(XFF, &[&format!("1.1.1.1, {trusted}")]), "U@10.1.1.1");
    assert_eq!(client(XFF, &[&vec!["10.1.1.1"; 1000].join(",")]), "U@10.1.1.1");
    assert_eq!(client(XFF, &vec![""; 1000]), "U@10.0.0.1");
    for filler in [",", "\"", "\\", "x", " ", ";", "\\\"", "for=\"a\\\"", "\u{fc}"] {
        let long = filler.repeat(65536 / filler.len());
        for name in [XFF, FWD, ONE] {
            assert_eq!(client(name, &[&long]), "U@10.0.0.1", "{filler} in {name}");
        }
        // Nothing that a client puts on the left moves what the proxy appended.
        assert_eq!(client(XFF, &[&format!("{long}, 203.0.113.7")]), "203.0.113.7");
        assert_eq!(client(FWD, &[&format!("{long}, for=\"203.0.113.7\"")]), "203.0.113.7");
    }
}

#[test]
fn settings_that_make_no_sense_are_errors() {
    for (settings, field, value) in [
        (reading(XFF), "client_ip.header", "x-forwarded-for"),
        (ClientIp::new().trusted_hops(1), "client_ip.header", "none"),
        (ClientIp::new().trusted_proxies(["10.0.0.0/8"]), "client_ip.header", "none"),
        (reading(XFF).trusted_hops(0), "client_ip.trusted_hops", "0"),
        (reading(XFF).trusted_hops(33), "client_ip.trusted_hops", "33"),
        (reading(ONE).trusted_hops(2), "client_ip.trusted_hops", "2"),
        (reading(XFF).trusted_hops(2).trusted_proxies(["::1"]), "client_ip.trusted_hops", "2"),
        (
            reading(XFF).forwarded().trusted_hops(1),
            "client_ip.header",
            "x-forwarded-for and forwarded",
        ),
        (ClientIp::new().header("forwarded"), "client_ip.header", "\"forwarded\""),
        (ClientIp::new().header("no name"), "client_ip.header", "\"no name\""),
        (
            reading(XFF).trusted_proxies(["10.0.0.0/33"]),
            "client_ip.trusted_proxies",
            "\"10.0.0.0/33\"",
        ),
        (reading(XFF).trusted_proxies(["0.0.0.0/0"]), "client_ip.trusted_proxies", "\"0.0.0.0/0\""),
        (reading(XFF).trusted_proxies([""; 0]), "client_ip.trusted_proxies", "[]"),
        (ClientIp::new().ipv6_prefix(31), "client_ip.ipv6_prefix", "31"),
        (ClientIp::new().ipv6_prefix(129), "client_ip.ipv6_prefix", "129"),
    ] {
        let error = settings.boxed().validate().unwrap_err();
        assert_eq!((error.field(), error.value()), (field, value));
    }
}

#[test]
fn the_peer_may_come_from_elsewhere() {
    let settings = ClientIp::new().peer_from(|_| Some("::ffff:192.0.2.1".parse().unwrap()));
    assert_eq!(from("10.0.0.1", &settings, XFF, &[]), "192.0.2.1");
}

#[cfg(feature = "axum")]
#[test]
fn connect_info_goes_before_a_bare_address() {
    let mut request = request(None, XFF, &[]);
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let seen = |request: &Request<()>| peer(&Head::of(request)).map(|ip| ip.to_string());
    assert_eq!(seen(&request), None);
    request.extensions_mut().insert(MockConnectInfo(address("192.0.2.3:1")));
    assert_eq!(seen(&request).as_deref(), Some("192.0.2.3"));
    request.extensions_mut().insert(address("192.0.2.2:1"));
    assert_eq!(seen(&request).as_deref(), Some("192.0.2.2"));
    request.extensions_mut().insert(ConnectInfo(address("192.0.2.1:1")));
    assert_eq!(seen(&request).as_deref(), Some("192.0.2.1"));
}
