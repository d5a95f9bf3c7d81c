#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_server::fuzz::http1(data));
