//! A server: its loop thread, its connections, and the queues to and from the driver's thread.

pub mod call_table;
pub mod connection;
pub mod connection_info;
pub mod connection_state;
pub mod connections;
pub mod descriptors;
pub mod dispatch;
pub mod event_loop;
pub mod inbox;
pub mod listener;
pub mod notices;
pub mod outbox;
pub mod outgoing;
pub mod peer_table;
pub mod port;
pub mod receive_window;
pub mod send_backlog;
pub mod supervision;
