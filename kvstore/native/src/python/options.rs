//! Settings as Python gives them: dicts by name, times in seconds.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::server::inbox::Limits;

/// Seconds as a duration; negative ones are none, and those that are too many the longest.
pub fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

/// A time limit; none for 0.
pub fn limit(seconds: f64) -> Option<Duration> {
    (seconds > 0.0).then(|| duration(seconds))
}

/// The option `name`; ValueError if it is missing.
pub fn option<'py, T: FromPyObjectOwned<'py>>(
    options: &Bound<'py, PyDict>,
    name: &str,
) -> PyResult<T> {
    match options.get_item(name)? {
        Some(value) => value.extract().map_err(Into::into),
        None => Err(PyValueError::new_err(format!("the option {name} is missing"))),
    }
}

/// Read the limits of the queues between the loop's thread and the driver's.
pub fn read_limits(options: &Bound<'_, PyDict>) -> PyResult<Limits> {
    Ok(Limits {
        calls_max: option(options, "calls_max")?,
        bytes_max: option(options, "bytes_max")?,
        waiting_calls_max: option(options, "waiting_calls_max")?,
        waiting_bytes_max: option(options, "waiting_bytes_max")?,
        stream_frames_max: option(options, "stream_frames_max")?,
        stream_bytes_max: option(options, "stream_bytes_max")?,
    })
}
