//! Models of the counting core: see the hidden module `models`. Compiled to nothing without
//! `--cfg sluice_loom`.
