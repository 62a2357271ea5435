#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kvstore_native::fuzzing::yaml(data));
