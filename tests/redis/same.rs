//! The same behaviour as in process.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use tower_sluice::{
    Algorithm, Calendar, FixedWindow,
    backend::Redis,
    testing::{Conformance, Report},
};

use crate::server::Server;

/// Checks each on a connection that all share, under a prefix of its own.
async fn checked(server: &Server, algorithms: Option<Vec<Algorithm>>) -> Report {
    let client = redis::Client::open(server.url()).unwrap();
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    let made = AtomicU32::new(0);
    let make = move || {
        let n = made.fetch_add(1, Ordering::Relaxed);
        Redis::from_connection(connection.clone())
            .prefix(format!("check-{n}"))
            .deadline(Duration::from_secs(5))
            .by_given_time()
    };
    let suite = Conformance::of(make).tick(Duration::from_micros(1));
    match algorithms {
        Some(algorithms) => suite.algorithms(algorithms).run().await,
        None => suite.run().await,
    }
}

#[tokio::test]
async fn it_keeps_what_a_backend_promises() {
    let server = Server::start();
    let report = checked(&server, None).await;
    report.assert_passed();
    println!("{report}");
}

#[tokio::test]
async fn windows_of_the_calendar_are_those_of_the_process() {
    let server = Server::start();
    let of_the_calendar = [Calendar::Day, Calendar::IsoWeek, Calendar::Month]
        .map(|calendar| Algorithm::from(FixedWindow::calendar(5, calendar)));
    checked(&server, Some(of_the_calendar.into())).await.assert_passed();
}
