//! One quota for a fleet, on a real server that each test starts and stops. Real time: what is asserted is the order of
//! events, or a bound ten times the expected.

mod differential;
mod same;
mod server;
