//! The date of answers over HTTP/2, formatted once a second. (hyper does the same for HTTP/1.1.)

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::http::HeaderValue;
use httpdate::fmt_http_date;

#[derive(Default)]
pub struct Date(RefCell<Option<(u64, HeaderValue)>>);

impl Date {
    pub fn now(&self) -> HeaderValue {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let known = &mut *self.0.borrow_mut();
        match known {
            Some((second, value)) if *second == since.as_secs() => value.clone(),
            _ => {
                let text = fmt_http_date(UNIX_EPOCH + since);
                let value = HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""));
                *known = Some((since.as_secs(), value.clone()));
                value
            }
        }
    }
}
