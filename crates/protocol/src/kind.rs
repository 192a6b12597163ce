//! What requests and replies are, by the number in their headers.

use crate::wire_enum::wire_enum;

wire_enum! {
    /// What a request asks for.
    pub enum RequestKind: u8 {
        /// Hand-shake, first on a connection.
        Hello = 1,
        /// A new session.
        OpenSession = 2,
        /// The end of a session.
        CloseSession = 3,
        /// Sign of life of a session, and a fresh reply header.
        KeepAlive = 4,
        /// Whether there is an entry.
        Search = 5,
        /// An entry.
        Get = 6,
        /// Write an entry.
        Put = 7,
        /// Remove an entry.
        Delete = 8,
        /// Many entries.
        MultiGet = 9,
        /// A page of a range.
        Scan = 10,
        /// The node's status.
        Status = 11,
        /// Check every invariant of the worker's pairs.
        Check = 12,
        /// Write an entry whose value comes in chunks.
        PutBegin = 13,
        /// A piece of a value.
        Chunk = 14,
        /// Leave to send more of a value.
        Credit = 15,
        /// Give a stream up.
        Cancel = 16,
        /// The registrations of the worker's regions.
        Regions = 17,
        /// The shape of the tree.
        Tree = 18,
        /// Which pair is where.
        Table = 19,
        /// What a client reports of its searches.
        Report = 20,
    }
}

wire_enum! {
    /// What a reply says.
    pub enum ReplyKind: u8 {
        /// Answers a hello.
        Hello = 1,
        /// A session was opened.
        Session = 2,
        /// A session has ended.
        SessionClosed = 3,
        /// Answers a keep-alive.
        Alive = 4,
        /// There is an entry.
        Exists = 5,
        /// An entry.
        Value = 6,
        /// A write is durable.
        Written = 7,
        /// A removal is durable.
        Deleted = 8,
        /// Many entries.
        Values = 9,
        /// A page of a range.
        Page = 10,
        /// The node's status.
        Status = 11,
        /// The result of a check.
        Checked = 12,
        /// A value comes in chunks.
        ValueBegin = 13,
        /// A piece of a value.
        Chunk = 14,
        /// Leave to send more of a value.
        Credit = 15,
        /// There is no entry.
        NotFound = 16,
        /// Not done; the status says why.
        Refused = 17,
        /// The registrations of the worker's regions.
        Regions = 18,
        /// The shape of the tree.
        Tree = 19,
        /// Which pair is where.
        Table = 20,
        /// Not done; the key is elsewhere, and here is where.
        Elsewhere = 21,
        /// Answers a client's report.
        Reported = 22,
    }
}
