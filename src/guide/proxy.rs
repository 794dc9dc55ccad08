//! Behind a proxy: whose address it is, and whom to believe.
//!
//! This page answers: Why do all my callers share one quota? What do I write behind nginx, a load balancer, a CDN? Do I
//! name the proxies or count them? What can an attacker put into the header? How do I see in production that it is
//! right?
//!
//! # The peer is the proxy
//!
//! A connection tells one address: that of whoever opened it, the *peer*. Behind a proxy that is the proxy, for every
//! request. A rule by address then counts the whole world as one caller. So a proxy writes down where a request came
//! from, in a header. But anybody can send that header, so none is believed until you say so. And since a header that
//! comes and is not believed is mostly a proxy that was forgotten, it raises the fault SL-PROXY.
//!
//! Here all of this is looked at with one small function: of which address is a permit gone, after one request of this
//! peer with this header?
//!
//! ```
//! use axum::{Router, body::Body, extract::ConnectInfo, http::Request, routing::get};
//! use std::net::SocketAddr;
//! use tower::ServiceExt;
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, RuleKey, TokenBucket, key, key::ClientIp};
//!
//! /// Whether a request of `peer` with this header counts as one of the address `whom`.
//! fn counts(by: &ClientIp, peer: &str, [name, value]: [&str; 2], whom: &str) -> bool {
//!     let layer = RateLimitLayer::builder()
//!         .rule(Rule::new("per-address", TokenBucket::per_minute(10)).key(by.clone()))
//!         .clock(ManualClock::new())
//!         .build()
//!         .unwrap();
//!     let handle = layer.handle();
//!     let app: Router = Router::new().route("/", get(|| async {}).layer(layer));
//!     let peer = ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 4_711));
//!     let request = Request::get("/").header(name, value).extension(peer);
//!     tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//!         app.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
//!         let whom = RuleKey::address(whom.parse().unwrap());
//!         handle.peek("per-address", whom, 1).await.unwrap().remaining() == 9
//!     })
//! }
//!
//! // The proxy at 10.0.1.5 forwards a request of 203.0.113.7.
//! let forwarded = ["x-forwarded-for", "203.0.113.7"];
//! // Not configured: it counts as one of the proxy's.
//! let direct = key::client_ip();
//! assert!(counts(&direct, "10.0.1.5", forwarded, "10.0.1.5"));
//! // Configured: it counts as his.
//! let behind = key::client_ip().x_forwarded_for().trusted_proxies(["10.0.1.0/24"]);
//! assert!(counts(&behind, "10.0.1.5", forwarded, "203.0.113.7"));
//! // Of somebody else than the proxy the header is not believed.
//! assert!(counts(&behind, "198.51.100.9", forwarded, "198.51.100.9"));
//! ```
//!
//! # Where you run, what to write
//!
//! | you run | write |
//! | --- | --- |
//! | directly on the internet | `key::client_ip()` |
//! | nginx on the same host | `key::client_ip().x_forwarded_for().trusted_proxies(["127.0.0.1", "::1"])` |
//! | a load balancer in your network | `key::client_ip().x_forwarded_for().trusted_proxies(["10.0.1.0/24"])`: the networks that *it* stands in |
//! | a CDN, then a load balancer | the same, with the networks that the CDN publishes besides: `trusted_proxies(["10.0.1.0/24", "192.0.2.0/24"])` |
//! | a CDN, and nothing else gets in | `key::client_ip().header("cf-connecting-ip").trusted_proxies([..])`: the header that your CDN *overwrites* |
//! | Fly | `key::client_ip().x_forwarded_for().trusted_hops(2)` |
//! | a Kubernetes ingress | `key::client_ip().x_forwarded_for().trusted_proxies(["10.244.0.0/16"])`: the network of its pods |
//! | a proxy that writes `Forwarded` (RFC 7239) | `key::client_ip().forwarded().trusted_proxies([..])` |
//! | a proxy that speaks the PROXY protocol | `key::client_ip().peer_from(..)`: see [below](#other-servers) |
//! | a Unix socket | `key::client_ip().peer_from(..)` and a header: see [below](#other-servers) |
//!
//! The proxy has to do its part:
//!
//! - **nginx** adds nothing to the header by itself. `proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;`
//!   appends the address that it sees to what came; `proxy_set_header X-Forwarded-For $remote_addr;` overwrites. Both
//!   are right here.
//! - **Load balancers.** That of AWS appends, unless it is told to `preserve` (its guide, "HTTP headers and Application
//!   Load Balancers"). Under `preserve` it passes on what the client wrote, which is worth nothing.
//! - **Fly** ends the list with the address of your own app (its documentation, "Request headers"). So the client is
//!   the second from the right.
//! - **Kubernetes.** ingress-nginx overwrites the header with the address that it sees, unless `use-forwarded-headers`
//!   is on. What it sees may be a node: with `externalTrafficPolicy: Cluster`, which is the default, the client's
//!   address is masked before it comes. `Local` leaves it (its documentation, "Retaining client ipaddress").
//!
//! Each row, with what such a proxy sends when the client at 203.0.113.7 has put an invention in front:
//!
//! ```
//! # use axum::{Router, body::Body, extract::ConnectInfo, http::Request, routing::get};
//! # use std::net::SocketAddr;
//! # use tower::ServiceExt;
//! # use tower_sluice::{ManualClock, RateLimitLayer, Rule, RuleKey, TokenBucket, key::ClientIp};
//! use tower_sluice::key;
//! # fn counts(by: &ClientIp, peer: &str, [name, value]: [&str; 2], whom: &str) -> bool {
//! #     let layer = RateLimitLayer::builder()
//! #         .rule(Rule::new("per-address", TokenBucket::per_minute(10)).key(by.clone()))
//! #         .clock(ManualClock::new())
//! #         .build()
//! #         .unwrap();
//! #     let handle = layer.handle();
//! #     let app: Router = Router::new().route("/", get(|| async {}).layer(layer));
//! #     let peer = ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 4_711));
//! #     let request = Request::get("/").header(name, value).extension(peer);
//! #     tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! #         app.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
//! #         let whom = RuleKey::address(whom.parse().unwrap());
//! #         handle.peek("per-address", whom, 1).await.unwrap().remaining() == 9
//! #     })
//! # }
//!
//! const XFF: &str = "x-forwarded-for";
//! let client = "203.0.113.7";
//!
//! // Directly: the header is the client's own, and nobody reads it.
//! assert!(counts(&key::client_ip(), client, [XFF, "1.1.1.1"], client));
//!
//! // nginx on the same host, which appends. A listener on [::] sees its IPv4 address in another form.
//! let nginx = key::client_ip().x_forwarded_for().trusted_proxies(["127.0.0.1", "::1"]);
//! assert!(counts(&nginx, "127.0.0.1", [XFF, "1.1.1.1, 203.0.113.7"], client));
//! assert!(counts(&nginx, "::ffff:127.0.0.1", [XFF, "1.1.1.1, 203.0.113.7"], client));
//!
//! // A load balancer in your network.
//! let balanced = key::client_ip().x_forwarded_for().trusted_proxies(["10.0.1.0/24"]);
//! assert!(counts(&balanced, "10.0.1.5", [XFF, "1.1.1.1, 203.0.113.7"], client));
//!
//! // A CDN in 192.0.2.0/24, whose address the load balancer appends.
//! let cdn = key::client_ip().x_forwarded_for().trusted_proxies(["10.0.1.0/24", "192.0.2.0/24"]);
//! assert!(counts(&cdn, "10.0.1.5", [XFF, "1.1.1.1, 203.0.113.7, 192.0.2.80"], client));
//! // Or by the CDN's own header, which it overwrites.
//! let header = key::client_ip().header("cf-connecting-ip").trusted_proxies(["192.0.2.0/24"]);
//! assert!(counts(&header, "192.0.2.80", ["cf-connecting-ip", "203.0.113.7"], client));
//!
//! // Fly, which ends the list with the app's own address.
//! let fly = key::client_ip().x_forwarded_for().trusted_hops(2);
//! assert!(counts(&fly, "172.16.0.1", [XFF, "1.1.1.1, 203.0.113.7, 192.0.2.10"], client));
//!
//! // An ingress in a cluster, which overwrites.
//! let ingress = key::client_ip().x_forwarded_for().trusted_proxies(["10.244.0.0/16"]);
//! assert!(counts(&ingress, "10.244.3.9", [XFF, "203.0.113.7"], client));
//!
//! // A proxy that writes `Forwarded`.
//! let forwarded = key::client_ip().forwarded().trusted_proxies(["10.0.1.0/24"]);
//! let list = "for=1.1.1.1, for=203.0.113.7;proto=https";
//! assert!(counts(&forwarded, "10.0.1.5", ["forwarded", list], client));
//! ```
//!
//! Addresses of IPv6 count by their /64 here too, wherever they were read: see
//! [identity](super::identity#addresses).
//!
//! # What an attacker can put in front
//!
//! He writes the header before it comes to your proxy, and your proxy appends to it. So what he wrote stands on the
//! *left*, as long as he likes, and the truth is on the right:
//!
//! ```text
//! he sends        X-Forwarded-For: 198.51.100.1, 10.0.1.77
//! the CDN adds    X-Forwarded-For: 198.51.100.1, 10.0.1.77, 203.0.113.7
//! the LB adds     X-Forwarded-For: 198.51.100.1, 10.0.1.77, 203.0.113.7, 192.0.2.80
//!                                  |--- his inventions ---| |-- he ---|  |- CDN -|
//!                                                                    <-- read from here
//! ```
//!
//! The list is read from the right, past those whom you trust, up to the first whom you do not. He cannot get beyond
//! that one, since it is himself. Reading from the left, as is often done, believes him: a new address for each
//! request, and no limit. It does not help him to write one of your proxies' addresses, nor garbage.
//!
//! ```
//! # use axum::{Router, body::Body, extract::ConnectInfo, http::Request, routing::get};
//! # use std::net::SocketAddr;
//! # use tower::ServiceExt;
//! # use tower_sluice::{ManualClock, RateLimitLayer, Rule, RuleKey, TokenBucket, key::ClientIp};
//! use tower_sluice::key;
//! # fn counts(by: &ClientIp, peer: &str, [name, value]: [&str; 2], whom: &str) -> bool {
//! #     let layer = RateLimitLayer::builder()
//! #         .rule(Rule::new("per-address", TokenBucket::per_minute(10)).key(by.clone()))
//! #         .clock(ManualClock::new())
//! #         .build()
//! #         .unwrap();
//! #     let handle = layer.handle();
//! #     let app: Router = Router::new().route("/", get(|| async {}).layer(layer));
//! #     let peer = ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 4_711));
//! #     let request = Request::get("/").header(name, value).extension(peer);
//! #     tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! #         app.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
//! #         let whom = RuleKey::address(whom.parse().unwrap());
//! #         handle.peek("per-address", whom, 1).await.unwrap().remaining() == 9
//! #     })
//! # }
//!
//! let by = key::client_ip().x_forwarded_for().trusted_proxies(["10.0.1.0/24", "192.0.2.0/24"]);
//! for invention in ["198.51.100.1", "198.51.100.1, 10.0.1.77", "192.0.2.80", "\"<script>, ;;", "unknown"] {
//!     let list = format!("{invention}, 203.0.113.7, 192.0.2.80");
//!     assert!(counts(&by, "10.0.1.5", ["x-forwarded-for", &list], "203.0.113.7"), "{list}");
//! }
//! // Another header than the one that you named is not looked at.
//! assert!(!counts(&by, "10.0.1.5", ["forwarded", "for=198.51.100.1"], "198.51.100.1"));
//! assert!(!counts(&by, "10.0.1.5", ["x-real-ip", "198.51.100.1"], "198.51.100.1"));
//! ```
//!
//! If a proxy that you trust names no address, as with `unknown` or without the header, nobody knows whose request it
//! is. Such requests count all together, as *unresolved* behind that proxy, and never as somebody's.
//!
//! # By network, or by number
//!
//! | | [`trusted_proxies`] | [`trusted_hops`] |
//! | --- | --- | --- |
//! | you have to know | the networks of all your proxies | how many there are |
//! | their addresses change, or nobody publishes them | the list must follow | nothing to do |
//! | some requests come through fewer of them | right | too few: unresolved. An invention in the list fills the gap, and is believed |
//! | somebody reaches you, or the load balancer, past the CDN | he counts as himself | **he writes the header himself, and is believed** |
//! | somebody stands in a trusted network | he chooses his key | he chooses his key |
//!
//! So take networks where you know them. A number is safe only if there is no way around the proxies, and that is a
//! matter of the firewall. Here somebody has found the load balancer's own address, and leaves the CDN out:
//!
//! ```
//! # use axum::{Router, body::Body, extract::ConnectInfo, http::Request, routing::get};
//! # use std::net::SocketAddr;
//! # use tower::ServiceExt;
//! # use tower_sluice::{ManualClock, RateLimitLayer, Rule, RuleKey, TokenBucket, key::ClientIp};
//! use tower_sluice::key;
//! # fn counts(by: &ClientIp, peer: &str, [name, value]: [&str; 2], whom: &str) -> bool {
//! #     let layer = RateLimitLayer::builder()
//! #         .rule(Rule::new("per-address", TokenBucket::per_minute(10)).key(by.clone()))
//! #         .clock(ManualClock::new())
//! #         .build()
//! #         .unwrap();
//! #     let handle = layer.handle();
//! #     let app: Router = Router::new().route("/", get(|| async {}).layer(layer));
//! #     let peer = ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 4_711));
//! #     let request = Request::get("/").header(name, value).extension(peer);
//! #     tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! #         app.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
//! #         let whom = RuleKey::address(whom.parse().unwrap());
//! #         handle.peek("per-address", whom, 1).await.unwrap().remaining() == 9
//! #     })
//! # }
//!
//! let networks = key::client_ip().x_forwarded_for().trusted_proxies(["10.0.1.0/24", "192.0.2.0/24"]);
//! let number = key::client_ip().x_forwarded_for().trusted_hops(2);
//!
//! // Through the CDN both are right.
//! let honest = ["x-forwarded-for", "203.0.113.7, 192.0.2.80"];
//! assert!(counts(&networks, "10.0.1.5", honest, "203.0.113.7"));
//! assert!(counts(&number, "10.0.1.5", honest, "203.0.113.7"));
//!
//! // Past it: he writes an invention, and the load balancer appends where he is.
//! let past = ["x-forwarded-for", "198.51.100.1, 203.0.113.7"];
//! assert!(counts(&networks, "10.0.1.5", past, "203.0.113.7"));
//! assert!(counts(&number, "10.0.1.5", past, "198.51.100.1")); // spent of somebody else
//! ```
//!
//! **Trust little.** All of `10.0.0.0/8` is every machine that you have, and every container on it. The networks of a
//! CDN are those of all its customers: where one of them can send requests from there to *your* origin, he chooses his
//! key. CDNs have means against that, as a certificate or a secret header that the origin demands.
//!
//! What cannot be right is an error when the layer is built: a header without anybody who is trusted, two headers, or
//! everybody trusted:
//!
//! ```
//! use tower_sluice::{RateLimitLayer, Rule, TokenBucket, key, key::ClientIp};
//!
//! let builds = |by: ClientIp| {
//!     let rule = Rule::new("per-address", TokenBucket::per_second(10)).key(by);
//!     RateLimitLayer::builder().rule(rule).build().is_ok()
//! };
//! assert!(!builds(key::client_ip().x_forwarded_for()));
//! assert!(!builds(key::client_ip().x_forwarded_for().forwarded().trusted_hops(1)));
//! assert!(!builds(key::client_ip().x_forwarded_for().trusted_proxies(["0.0.0.0/0"])));
//! assert!(builds(key::client_ip().x_forwarded_for().trusted_hops(1)));
//! ```
//!
//! [`trusted_proxies`]: ClientIp::trusted_proxies
//! [`trusted_hops`]: ClientIp::trusted_hops
//!
//! # Other servers
//!
//! The peer's address is looked for where axum puts it: serve with
//! `app.into_make_service_with_connect_info::<SocketAddr>()`. A server with connect info of its own says by
//! [`peer_from`](ClientIp::peer_from) where it is.
//!
//! **The PROXY protocol** has no header. The proxy writes the client's address before the first byte of a connection,
//! and the code that accepts connections reads it and puts it into the connect info. Then the *peer* is the client,
//! and nothing else is to be said. (That code must accept it from the proxy alone: it is for whoever opens the
//! connection to write.)
//!
//! **A Unix socket** has no address. Whoever may open it is your proxy, so say that it is local, and believe its
//! header:
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use std::net::{IpAddr, Ipv4Addr};
//! use tower::ServiceExt;
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, RuleKey, TokenBucket, key};
//!
//! /// What the code that accepts connections has read of the PROXY protocol.
//! #[derive(Clone)]
//! struct Connection { client: IpAddr }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let proxy_protocol = key::client_ip()
//!     .peer_from(|head| head.extension::<Connection>().map(|connection| connection.client));
//! let unix_socket = key::client_ip()
//!     .peer_from(|_| Some(Ipv4Addr::LOCALHOST.into()))
//!     .x_forwarded_for()
//!     .trusted_proxies(["127.0.0.1"]);
//! let layer = RateLimitLayer::builder()
//!     .rule(Rule::new("by-proxy-protocol", TokenBucket::per_minute(10)).key(proxy_protocol))
//!     .rule(Rule::new("by-header", TokenBucket::per_minute(10)).key(unix_socket))
//!     .clock(ManualClock::new())
//!     .build()?;
//! let handle = layer.handle();
//! let app: Router = Router::new().route("/", get(|| async {}).layer(layer));
//!
//! let client: IpAddr = "203.0.113.7".parse()?;
//! let request = Request::get("/").extension(Connection { client });
//! let request = request.header("x-forwarded-for", "1.1.1.1, 203.0.113.7");
//! assert_eq!(app.oneshot(request.body(Body::empty())?).await?.status(), 200);
//! for rule in ["by-proxy-protocol", "by-header"] {
//!     assert_eq!(handle.peek(rule, RuleKey::address(client), 1).await?.remaining(), 9, "{rule}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Without a peer
//!
//! If no peer is known, all requests count together and no header is believed: who the proxy is cannot be checked. They
//! are limited, though all as one, and SL-PEER says so. Mostly the server was started without connect info.
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use tower::ServiceExt;
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket, key};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let by = key::client_ip().x_forwarded_for().trusted_proxies(["10.0.1.0/24"]);
//! let layer = RateLimitLayer::builder()
//!     .rule(Rule::new("per-address", TokenBucket::per_minute(2)).key(by))
//!     .clock(ManualClock::new())
//!     .build()?;
//! let app: Router = Router::new().route("/", get(|| async {}).layer(layer));
//! // Three requests that say that they are of three clients.
//! for (client, expected) in [(1, 200), (2, 200), (3, 429)] {
//!     let request = Request::get("/").header("x-forwarded-for", format!("203.0.113.{client}"));
//!     let answer = app.clone().oneshot(request.body(Body::empty())?).await?;
//!     assert_eq!(answer.status().as_u16(), expected);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # See that it is right
//!
//! **Listen to the faults.** Each is told once, as a warning of `tracing` and to [`Observer::fault`]. Alarm on them:
//!
//! | fault | says | mostly |
//! | --- | --- | --- |
//! | SL-PEER | there is no peer address | connect info is missing |
//! | SL-PROXY | a header came, and none is believed | a proxy that nobody configured |
//! | SL-ONEKEY | a minute, a hundred requests or more, and one key | the wrong header, or a proxy in a network that was not named |
//! | SL-KEYS | more keys than the rule keeps | somebody chooses his key: see [by number](#by-network-or-by-number) |
//!
//! ```
//! use axum::{Router, body::Body, extract::ConnectInfo, http::Request, routing::get};
//! use std::{net::SocketAddr, time::Duration};
//! use tower::ServiceExt;
//! use tower_sluice::{
//!     ManualClock, RateLimitLayer, Rule, TokenBucket, event::Fault, key, key::ClientIp, testing::Recorder,
//! };
//!
//! /// What is found wrong in two minutes of a service whose proxy stands at 10.0.2.5.
//! async fn faults(by: ClientIp, connect_info: bool) -> Vec<Fault> {
//!     let (clock, recorder) = (ManualClock::new(), Recorder::new());
//!     let layer = RateLimitLayer::builder()
//!         .rule(Rule::new("per-address", TokenBucket::per_second(10)).key(by))
//!         .observer(recorder.clone())
//!         .clock(clock.clone())
//!         .build()
//!         .unwrap();
//!     let app: Router = Router::new().route("/", get(|| async {}).layer(layer));
//!     for second in 0..120 {
//!         let mut request =
//!             Request::get("/").header("x-forwarded-for", format!("203.0.113.{second}"));
//!         if connect_info {
//!             request = request.extension(ConnectInfo(SocketAddr::from(([10, 0, 2, 5], 4_711))));
//!         }
//!         app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
//!         clock.advance(Duration::from_secs(1));
//!     }
//!     recorder.faults()
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let behind = |network: &str| key::client_ip().x_forwarded_for().trusted_proxies([network]);
//! assert_eq!(faults(behind("10.0.2.0/24"), true).await, []);
//! assert_eq!(faults(key::client_ip(), true).await, [Fault::Proxy, Fault::OneKey]);
//! assert_eq!(faults(behind("10.0.1.0/24"), true).await, [Fault::OneKey]); // the wrong network
//! assert!(faults(behind("10.0.2.0/24"), false).await.contains(&Fault::Peer));
//! # });
//! ```
//!
//! **Ask from outside.** Send a request from a machine whose address you know, and one with an invention, as
//! `curl -H 'x-forwarded-for: 198.51.100.1'`. Then ask the [`Handle`], on a page that only you can reach. Two permits
//! of your address must be gone, and none of the invention:
//!
//! ```
//! use axum::{Router, body::Body, extract::{ConnectInfo, Path, State}, http::Request, routing::get};
//! use std::net::{IpAddr, SocketAddr};
//! use tower::ServiceExt;
//! use tower_sluice::{Handle, ManualClock, RateLimitLayer, Rule, RuleKey, TokenBucket, key};
//!
//! /// How many permits of an address are left, and how many addresses are known.
//! async fn left(State(handle): State<Handle>, Path(address): Path<IpAddr>) -> String {
//!     let decision = handle.peek("per-address", RuleKey::address(address), 1).await;
//!     let left = decision.map(|decision| decision.remaining());
//!     format!("{left:?}, {:?} known", handle.tracked_keys("per-address"))
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let by = key::client_ip().x_forwarded_for().trusted_proxies(["10.0.1.0/24"]);
//! let layer = RateLimitLayer::builder()
//!     .rule(Rule::new("per-address", TokenBucket::per_minute(10)).key(by))
//!     .clock(ManualClock::new())
//!     .build()?;
//! let admin: Router = Router::new().route("/left/{address}", get(left)).with_state(layer.handle());
//! let app: Router = Router::new().route("/", get(|| async {}).layer(layer));
//!
//! // What comes of two requests, one with an invention, when the proxy has appended to them.
//! for list in ["203.0.113.7", "198.51.100.1, 203.0.113.7"] {
//!     let peer = ConnectInfo(SocketAddr::from(([10, 0, 1, 5], 4_711)));
//!     let request = Request::get("/").header("x-forwarded-for", list).extension(peer);
//!     app.clone().oneshot(request.body(Body::empty())?).await?;
//! }
//! let ask = async |address: &str| {
//!     let request = Request::get(format!("/left/{address}")).body(Body::empty()).unwrap();
//!     let body = admin.clone().oneshot(request).await.unwrap().into_body();
//!     axum::body::to_bytes(body, 1_000).await.unwrap()
//! };
//! assert_eq!(ask("203.0.113.7").await, "Ok(8), Ok(Some(1)) known");
//! assert_eq!(ask("198.51.100.1").await, "Ok(10), Ok(Some(1)) known");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! **Watch how many addresses are known.** [`Handle::tracked_keys`] should be near the number of your callers. One
//! means that the proxy is counted; very many more than there are callers, that somebody invents them.
//!
//! # Next
//!
//! [Order of layers](super::layers): where the layer stands among others.
//!
//! Used on this page: [`ClientIp`], [`RuleKey`], [`Handle`], [`Observer`], [`RateLimitLayer`], [`Rule`],
//! [`Fault`](crate::event::Fault), and in tests `testing::Recorder`.

#[cfg(doc)]
use crate::{Handle, Observer, RateLimitLayer, Rule, RuleKey, key::ClientIp};
