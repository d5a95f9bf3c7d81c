#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_streams::fuzz::recovery(data));
