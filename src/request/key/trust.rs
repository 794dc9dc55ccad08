//! [`Networks`]: lists of CIDRs, IPv4-mapped ones folded.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use crate::ConfigError;

/// Some networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Networks(Vec<IpNet>);

impl Networks {
    /// Reads CIDRs (`10.0.0.0/8`) and single addresses (`10.0.0.1`).
    pub(crate) fn parse<I>(field: &'static str, networks: I) -> Result<Self, ConfigError>
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        let networks: Result<Vec<_>, _> = networks
            .into_iter()
            .map(|text| {
                let text = text.as_ref();
                parse(text).ok_or_else(|| {
                    ConfigError::new(
                        field,
                        format_args!("{text:?}"),
                        "not a network: write 10.0.0.0/8, 2001:db8::/32 or one address",
                    )
                })
            })
            .collect();
        let networks = networks?;
        if networks.is_empty() {
            return Err(ConfigError::new(field, "[]", "name at least one network"));
        }
        Ok(Self(networks))
    }

    /// Whether `address`, which is canonical, is in one of them.
    #[inline]
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The network that holds every address of its family, if there is one.
    pub(crate) fn everything(&self) -> Option<&IpNet> {
        self.0.iter().find(|network| network.prefix_len() == 0)
    }

    /// Adds those of `other`.
    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

fn parse(text: &str) -> Option<IpNet> {
    let text = text.trim();
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical().into());
    }
    let network: IpNet = text.parse().ok()?;
    // Addresses are compared in their canonical form, so networks of mapped ones need it too.
    if let IpNet::V6(v6) = network
        && let Some(v4) = v6.addr().to_ipv4_mapped()
        && let Some(prefix) = v6.prefix_len().checked_sub(96)
    {
        return Ipv4Net::new(v4, prefix).ok().map(IpNet::V4);
    }
    Some(network)
}
