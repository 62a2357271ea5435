//! Lines of the log about connections that were closed.

use crate::server::call_table::CallTable;
use crate::server::connection_state::Conn;

/// Log that a connection is closed because its socket takes nothing.
pub fn notice_stall(table: &CallTable, conn: &Conn) {
    let limit = conn.port.limits.write_stall.unwrap_or_default();
    notice(table, conn, "write", &format!("the client has read nothing for {limit:?}"));
}

/// Log why a connection is closed.
pub fn notice(table: &CallTable, conn: &Conn, what: &str, why: &dyn std::fmt::Display) {
    table.inbox.add_notice(format!("connection closed: {what}: {why}: {}", conn.peer));
}
