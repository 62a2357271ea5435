//! The methods that are served, by path.

use std::collections::HashMap;

use crate::grpc::{self, Status};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Unary,
    ServerStream,
    Bidi,
}

#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub method: u32,
    pub kind: Kind,
    pub ends_by_itself: bool, // the answer of a server stream is bounded
}

/// Paths with their routes.
#[derive(Default)]
pub struct Routes(HashMap<String, Route>);

impl FromIterator<(String, Route)> for Routes {
    fn from_iter<T: IntoIterator<Item = (String, Route)>>(routes: T) -> Self {
        Routes(routes.into_iter().collect())
    }
}

impl Routes {
    /// Find the route of a path, or return grpc-go's error.
    pub fn find(&self, path: &str) -> Result<Route, Status> {
        if let Some(route) = self.0.get(path) {
            return Ok(*route);
        }
        let unimplemented = |text: String| Err(Status::new(grpc::UNIMPLEMENTED, text));
        let bare = path.strip_prefix('/').unwrap_or(path);
        let Some((service, method)) = bare.rsplit_once('/') else {
            return unimplemented(format!("malformed method name: {path:?}"));
        };
        let prefix = format!("/{service}/");
        if self.0.keys().any(|known| known.starts_with(&prefix)) {
            return unimplemented(format!("unknown method {method} for service {service}"));
        }
        unimplemented(format!("unknown service {service}"))
    }
}
