//! What warms up: exactly along the ramp where binary fractions tell it, to a permit where they do not.

use proptest::prelude::*;

use crate::{
    bucket::{follow_the_model, keys, steps},
    config,
    quotas::{epoch, exact_and_warm, ramp},
};

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_warms_up_follows_its_ramp_on_every_path(
        exact in exact_and_warm(),
        ramp in ramp(),
        epoch in epoch(),
        keys in keys(),
        steps in steps(),
    ) {
        follow_the_model(exact.on(ramp), epoch, keys, &steps)?;
    }
}
