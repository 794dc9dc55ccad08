//! A limit of N admits exactly N, wherever the layer is put.

use std::net::SocketAddr;

use axum::{
    Extension, Router,
    body::Body,
    extract::Request,
    handler::Handler,
    routing::{get, get_service},
};
use http::StatusCode;
use http_body_util::Limited;
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_http::{
    limit::RequestBodyLimitLayer, map_response_body::MapResponseBodyLayer,
    normalize_path::NormalizePathLayer,
};
use tower_sluice::{
    Decisions, FixedWindow, RateLimitLayer, Rule, RuleDecision, TokenBucket, event::Fault, key,
};

use crate::support::{
    BOTH, Connection, Hits, LIMIT, Record, Tally, Wire, assert_exact, flood, limit, listen, serve,
    serve_around,
};

/// Serves what `build` makes of a fresh layer, and floods it, in both versions of HTTP.
async fn holds(path: &'static str, build: fn(RateLimitLayer, &Hits) -> Router) {
    for wire in BOTH {
        let hits = Hits::default();
        let address = serve(build(limit(), &hits)).await;
        assert_exact(flood(address, wire, path).await, &hits, wire);
    }
}

#[tokio::test]
async fn router_layer_admits_exactly_the_limit() {
    holds("/a", |limit, hits| Router::new().route("/a", get(hits.handler())).layer(limit)).await;
}

#[tokio::test]
async fn route_layer_admits_exactly_the_limit() {
    let build =
        |limit, hits: &Hits| Router::new().route("/a", get(hits.handler())).route_layer(limit);
    holds("/a", build).await;
}

#[tokio::test]
async fn method_router_layer_admits_exactly_the_limit() {
    holds("/a", |limit, hits| Router::new().route("/a", get(hits.handler()).layer(limit))).await;
}

#[tokio::test]
async fn method_router_route_layer_admits_exactly_the_limit() {
    let build =
        |limit, hits: &Hits| Router::new().route("/a", get(hits.handler()).route_layer(limit));
    holds("/a", build).await;
}

#[tokio::test]
async fn handler_layer_admits_exactly_the_limit() {
    holds("/a", |limit, hits| Router::new().route("/a", get(hits.handler().layer(limit)))).await;
}

#[tokio::test]
async fn layer_inside_nest_admits_exactly_the_limit() {
    let build = |limit, hits: &Hits| {
        let inner = Router::new().route("/a", get(hits.handler())).layer(limit);
        Router::new().nest("/inner", inner)
    };
    holds("/inner/a", build).await;
}

#[tokio::test]
async fn layer_outside_nest_admits_exactly_the_limit() {
    let build = |limit, hits: &Hits| {
        let inner = Router::new().route("/a", get(hits.handler()));
        Router::new().nest("/inner", inner).layer(limit)
    };
    holds("/inner/a", build).await;
}

#[tokio::test]
async fn one_layer_on_two_mounts_is_one_limit() {
    for wire in BOTH {
        let (hits, limit) = (Hits::default(), limit());
        let inner = Router::new().route("/a", get(hits.handler()));
        let app = Router::new()
            .nest("/one", inner.clone().layer(limit.clone()))
            .nest_service("/two", inner.layer(limit));
        let address = serve(app).await;
        let (one, two) =
            tokio::join!(flood(address, wire, "/one/a"), flood(address, wire, "/two/a"));
        assert_eq!(one.served + two.served, LIMIT, "{wire:?}");
        assert_eq!(one.refused + two.refused, 160 - LIMIT, "{wire:?}");
        assert_eq!(hits.get(), LIMIT, "{wire:?}");
    }
}

#[tokio::test]
async fn fallbacks_are_limited_by_router_layer() {
    let build = |limit, hits: &Hits| Router::new().fallback(hits.handler()).layer(limit);
    holds("/anything", build).await;
}

#[tokio::test]
async fn service_builder_admits_exactly_the_limit() {
    let build = |limit, hits: &Hits| {
        Router::new().route("/a", get(hits.handler())).layer(ServiceBuilder::new().layer(limit))
    };
    holds("/a", build).await;
}

#[tokio::test]
async fn above_layers_that_change_bodies_it_admits_exactly_the_limit() {
    let build = |limit, hits: &Hits| {
        let stack = ServiceBuilder::new()
            .layer(limit)
            .layer(RequestBodyLimitLayer::new(1_000))
            .layer(MapResponseBodyLayer::new(|body: Body| Limited::new(body, 10_000)));
        Router::new().route("/a", get(hits.handler())).layer(stack)
    };
    holds("/a", build).await;
}

#[tokio::test]
async fn below_layers_that_change_bodies_it_admits_exactly_the_limit() {
    let build = |limit, hits: &Hits| {
        let stack = ServiceBuilder::new().layer(RequestBodyLimitLayer::new(1_000)).layer(limit);
        Router::new().route("/a", get_service(get(hits.handler()))).layer(stack)
    };
    holds("/a", build).await;
}

#[tokio::test]
async fn around_the_router_it_admits_exactly_the_limit() {
    for wire in BOTH {
        let hits = Hits::default();
        let router = Router::new().route("/a", get(hits.handler()));
        let address = serve_around(limit().layer(router)).await;
        assert_exact(flood(address, wire, "/a").await, &hits, wire);
    }
}

#[tokio::test]
async fn around_the_router_and_another_layer_it_admits_exactly_the_limit() {
    for wire in BOTH {
        let hits = Hits::default();
        let router = Router::new().route("/a", get(hits.handler()));
        let normalized = NormalizePathLayer::trim_trailing_slash().layer(router);
        let address = serve_around(limit().layer(normalized)).await;
        assert_exact(flood(address, wire, "/a/").await, &hits, wire);
    }
}

#[tokio::test]
async fn into_make_service_admits_exactly_the_limit() {
    for wire in BOTH {
        let hits = Hits::default();
        let app = Router::new().route("/a", get(hits.handler()).layer(limit()));
        let (listener, address) = listen().await;
        tokio::spawn(async move { axum::serve(listener, app.into_make_service()).await });
        assert_exact(flood(address, wire, "/a").await, &hits, wire);
    }
}

#[tokio::test]
async fn with_connect_info_an_address_gets_exactly_its_limit() {
    for wire in BOTH {
        let (hits, record) = (Hits::default(), Record::default());
        let per_address = RateLimitLayer::builder()
            .rule(
                Rule::new("per-address", TokenBucket::per_hour(1).burst(LIMIT))
                    .key(key::client_ip()),
            )
            .observer(record.clone())
            .build()
            .unwrap();
        let handle = per_address.handle();
        let app = Router::new().route("/a", get(hits.handler())).layer(per_address);
        let (listener, address) = listen().await;
        let make = app.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, make).await });
        assert_exact(flood(address, wire, "/a").await, &hits, wire);
        let told = record.told();
        assert_eq!((told.admitted, told.rejected.len()), (LIMIT, 80 - LIMIT as usize));
        assert_eq!(told.faults, [], "the peer address is there");
        assert_eq!(handle.tracked_keys("per-address").unwrap(), Some(1));
    }
}

#[tokio::test]
async fn oneshot_on_clones_admits_exactly_the_limit() {
    let hits = Hits::default();
    let app = Router::new().route("/a", get(hits.handler())).layer(limit());
    let calls: Vec<_> = (0..80)
        .map(|_| tokio::spawn(app.clone().oneshot(Request::get("/a").body(Body::empty()).unwrap())))
        .collect();
    let mut statuses = Vec::new();
    for call in calls {
        statuses.push(call.await.unwrap().unwrap().status());
    }
    assert_exact(statuses.into_iter().collect(), &hits, "oneshot");
}

#[tokio::test]
async fn many_connections_of_both_versions_share_one_limit() {
    let hits = Hits::default();
    let address = serve(Router::new().route("/a", get(hits.handler())).layer(limit())).await;
    let connections: Vec<_> = (0..100)
        .map(|n| {
            let wire = BOTH[n % 2];
            tokio::spawn(
                async move { Connection::open(address, wire).await.get_many("/a", 3).await },
            )
        })
        .collect();
    let mut statuses = Vec::new();
    for connection in connections {
        statuses.extend(connection.await.unwrap());
    }
    let tally: Tally = statuses.into_iter().collect();
    assert_eq!(tally, Tally { served: LIMIT, refused: 300 - LIMIT, other: 0 });
    assert_eq!(hits.get(), LIMIT);
}

#[tokio::test]
async fn idle_connections_take_nothing() {
    let hits = Hits::default();
    let limit = RateLimitLayer::builder()
        .rule(Rule::new("all", FixedWindow::per_day(LIMIT)).when(|head| head.path() == "/a"))
        .build()
        .unwrap();
    let handle = limit.handle();
    let app = Router::new()
        .route("/a", get(hits.handler()))
        .route("/free", get(|| async {}))
        .layer(limit);
    let address = serve(app).await;
    let mut idle = Vec::new();
    for n in 0..300 {
        let mut connection = Connection::open(address, BOTH[n % 2]).await;
        // Half of them have asked for something, so that the service was made ready for them.
        if n % 4 < 2 {
            assert_eq!(connection.get("/free").await.status, StatusCode::OK);
        }
        idle.push(connection);
    }
    assert_eq!(handle.peek("all", (), 1).await.unwrap().remaining(), LIMIT);
    assert_exact(flood(address, Wire::Http1, "/a").await, &hits, "beside idle connections");
    // They are alive, and meet the same limit.
    for connection in idle.iter_mut().take(8) {
        assert_eq!(connection.get("/free").await.status, StatusCode::OK);
        assert_eq!(connection.get("/a").await.status, StatusCode::TOO_MANY_REQUESTS);
    }
}

#[tokio::test]
async fn stacked_layers_each_count_what_reaches_them() {
    for wire in BOTH {
        let hits = Hits::default();
        let outer = RateLimitLayer::builder()
            .rule(Rule::new("outer", FixedWindow::per_day(2 * LIMIT)))
            .build()
            .unwrap();
        let inner = limit();
        let (outside, inside) = (outer.handle(), inner.handle());
        let app = Router::new().route("/a", get(hits.handler()).layer(inner)).layer(outer);
        let address = serve(app).await;
        assert_exact(flood(address, wire, "/a").await, &hits, wire);
        // The outer layer let twice as many pass; the inner one was not asked about the others.
        assert_eq!(outside.peek("outer", (), 1).await.unwrap().remaining(), 0);
        assert_eq!(inside.peek("all", (), 1).await.unwrap().remaining(), 0);
    }
}

#[tokio::test]
async fn stacked_layers_expose_the_decisions_of_both() {
    let layer = |name, limit| {
        RateLimitLayer::builder()
            .rule(Rule::new(name, FixedWindow::per_day(limit)))
            .expose_decision()
            .build()
            .unwrap()
    };
    let names = |decisions: &Decisions| {
        let decision = |rule: &RuleDecision| {
            format!("{} {}", rule.rule(), rule.decision().unwrap().remaining())
        };
        decisions.as_slice().iter().map(decision).collect::<Vec<_>>().join(", ")
    };
    let told = move |Extension(decisions): Extension<Decisions>| async move { names(&decisions) };
    let app = Router::new()
        .route("/a", get(told).layer(layer("inner", 7)))
        .layer(layer("middle", 8))
        .layer(layer("outer", 9));
    let answer = app.oneshot(Request::get("/a").body(Body::empty()).unwrap()).await.unwrap();
    let expected = "outer 8, middle 7, inner 6";
    assert_eq!(names(answer.extensions().get::<Decisions>().unwrap()), expected);
    let body = axum::body::to_bytes(answer.into_body(), 1_000).await.unwrap();
    assert_eq!(body, expected);
}

#[tokio::test]
async fn the_same_built_layer_twice_is_reported_once() {
    for wire in BOTH {
        let (hits, record) = (Hits::default(), Record::default());
        let limit = RateLimitLayer::builder()
            .rule(Rule::new("all", FixedWindow::per_day(LIMIT)))
            .observer(record.clone())
            .build()
            .unwrap();
        let app = Router::new().route("/a", get(hits.handler()).layer(limit.clone())).layer(limit);
        let address = serve(app).await;
        let mut connection = Connection::open(address, wire).await;
        for _ in 0..5 {
            assert_eq!(connection.get("/a").await.status, StatusCode::OK);
        }
        assert_eq!(record.told().faults, [Fault::Twice], "{wire:?}");
        assert_eq!(record.told().admitted, 10, "each request is charged twice");
    }
}
