//! What a client reports to each node about once a second of the searches by that connection, and the
//! settings that it is given in return.
//!
//! Report, after the request header:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | client id, drawn at its start |
//! | 8 | 8 | revision of the settings that it has from the cluster; 0: none |
//! | 16 | 8 | length of the interval since the last report of this connection, nanoseconds |
//! | 24 | 8 | `l_s`: mean latency of a search by the server, nanoseconds; 0: not known, here and below |
//! | 32 | 8 | `l_r`: mean latency of a one-sided read, nanoseconds |
//! | 40 | 8 | `RTT`: lowest latency of a one-sided read, nanoseconds |
//! | 48 | 8 | mean latency of a search with one-sided reads, nanoseconds |
//! | 56 | 4 | `m`: reads that a search needs, thousandths |
//! | 60 | 4 | share of the searches that the rule gives the server, millionths; all ones: it knows none |
//! | 64 | 4 | operations in hand |
//! | 68 | 1 | transport: 1 tcp, 2 shm, 3 verbs, 4 sim |
//! | 69 | 1 | policy: 1 adaptive, 2 paper, 3 fixed, 4 client, 5 server |
//! | 70 | 2 | length of the name, at most [`NAME_BYTES_MAX`] |
//! | 72 | 8 each | the counts of the interval, in the order of [`ClientCounts`] |
//! | 248 | 2 | meganodes that it has read one-sidedly, at most [`REPORTED_MEGANODES_MAX`] |
//! | 250 | 6 | reserved, zero |
//! | 256 | 8 | one-sided reads of further meganodes |
//! | 264 | | name (UTF-8) |
//! | | 16 each | the meganodes: [`crate::reported_reads`] |
//!
//! Reply, after the reply header:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | revision of the cluster's settings for clients; 0: none |
//! | 8 | 2 | count of values; none if the client has that revision |
//! | 10 | 6 | reserved, zero |
//! | 16 | | for each value: |
//! | +0 | 2 | length of the name, at most [`SETTING_NAME_BYTES_MAX`] |
//! | +2 | 2 | length of the value, at most [`SETTING_VALUE_BYTES_MAX`] |
//! | +4 | | name, value (UTF-8) |
//!
//! All of it is for people and advice: nobody's answers rest on it.

use crate::cursor::{Reader, Writer};
use crate::header::{REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES};
use crate::reported_reads::{REPORTED_MEGANODES_MAX, ReportedReads};
use crate::wire_enum::wire_enum;
use crate::{DecodeError, EncodeError, MESSAGE_BYTES_MAX, NAME_BYTES_MAX};

/// Bytes of a report besides its counts.
const REPORT_FIXED_BYTES: usize = 88;
const _: () = assert!(
    REPORT_FIXED_BYTES + 8 * ClientCounts::COUNT + NAME_BYTES_MAX + 16 * REPORTED_MEGANODES_MAX
        <= MESSAGE_BYTES_MAX - REQUEST_HEADER_BYTES
);

const REPLY_FIXED_BYTES: usize = 16;
const VALUE_FIXED_BYTES: usize = 4;

/// Longest name of a setting.
pub const SETTING_NAME_BYTES_MAX: usize = 128;

/// Longest text of a setting's value.
pub const SETTING_VALUE_BYTES_MAX: usize = 4096;

/// The share where the rule knows none.
const SHARE_UNKNOWN: u32 = u32::MAX;
const SHARE_MILLIONTHS_MAX: u32 = 1_000_000;

wire_enum! {
    /// What a client talks over.
    #[derive(Default)]
    pub enum ReportTransport: u8 {
        /// TCP.
        #[default]
        Tcp = 1,
        /// Shared memory.
        Shm = 2,
        /// RDMA.
        Verbs = 3,
        /// A simulated network.
        Sim = 4,
    }
}

impl ReportTransport {
    /// Its word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ReportTransport::Tcp => "tcp",
            ReportTransport::Shm => "shm",
            ReportTransport::Verbs => "verbs",
            ReportTransport::Sim => "sim",
        }
    }
}

wire_enum! {
    /// By which rule a client decides who searches.
    #[derive(Default)]
    pub enum ReportPolicy: u8 {
        /// By what an operation costs all clients.
        #[default]
        Adaptive = 1,
        /// The rule of the paper.
        Paper = 2,
        /// A fixed share.
        Fixed = 3,
        /// The client does each search itself.
        Client = 4,
        /// The server does each search.
        Server = 5,
    }
}

impl ReportPolicy {
    /// Its word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ReportPolicy::Adaptive => "adaptive",
            ReportPolicy::Paper => "paper",
            ReportPolicy::Fixed => "fixed",
            ReportPolicy::Client => "client",
            ReportPolicy::Server => "server",
        }
    }
}

macro_rules! counts {
    ($($field:ident: $meaning:literal;)+) => {
        /// What a client has counted on one connection, in an interval or since its start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ClientCounts {
            $(#[doc = $meaning] pub $field: u64,)+
        }

        impl ClientCounts {
            /// How many there are.
            pub const COUNT: usize = [$(stringify!($field)),+].len();

            /// All of them, in the order of the wire.
            #[must_use]
            pub fn to_array(&self) -> [u64; ClientCounts::COUNT] {
                [$(self.$field),+]
            }

            /// Those of [`ClientCounts::to_array`].
            #[must_use]
            pub fn from_array(array: [u64; ClientCounts::COUNT]) -> ClientCounts {
                let [$($field),+] = array;
                ClientCounts { $($field),+ }
            }

            /// Adds others.
            pub fn add(&mut self, other: &ClientCounts) {
                $(self.$field = self.$field.wrapping_add(other.$field);)+
            }

            /// What has come since earlier ones.
            #[must_use]
            pub fn since(&self, earlier: &ClientCounts) -> ClientCounts {
                ClientCounts { $($field: self.$field.wrapping_sub(earlier.$field)),+ }
            }
        }
    };
}

counts! {
    server: "Searches that the server has answered.";
    one_sided: "Searches that the client has answered with one-sided reads.";
    requests: "Messages of operations that were sent, writes and repeats among them.";
    estimate: "Decisions by the estimates.";
    exploration: "Decisions for the path that is estimated to be the worse one.";
    fixed_share: "Decisions by a fixed share.";
    not_enough_samples: "Decisions while too little was known of a path.";
    idle_reset: "Decisions while too little was known, because the history was dropped after an idle time.";
    not_registered: "Decisions for the server: its registrations were not known.";
    not_permitted: "Decisions for the server: it permits no one-sided reads, or the fabric cannot do them.";
    not_trusted: "Decisions for the server: no trust in what is read held.";
    reads: "One-sided reads posted.";
    cache_hits: "Tree nodes above the leaves that were found in the cache.";
    cache_misses: "Tree nodes above the leaves that were not, and had to be read.";
    torn: "Tried again: a writer was at work in a tree node.";
    stale: "Tried again: a tree node was not valid any more, or an extent was not its leaf's.";
    fence: "Tried again: a tree node did not cover the key.";
    slow: "Tried again: the search took longer than permitted.";
    watermark: "Tried again: what was found was not durable yet.";
    trust: "Tried again: the owner's lease had to be asked for.";
    other: "Reads that failed otherwise: regions not registered any more, a lost connection.";
    fallbacks: "Searches that one-sided reads did not answer: the server did.";
}

impl ClientCounts {
    /// Searches by either path.
    #[must_use]
    pub fn searches(&self) -> u64 {
        self.server.saturating_add(self.one_sided)
    }
}

/// What a client knows of a connection. Latencies are means in nanoseconds; 0: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientEstimates {
    /// `l_s`: a search by the server.
    pub server_ns: u64,
    /// `l_r`: a one-sided read.
    pub read_ns: u64,
    /// `RTT`: the lowest latency of a read.
    pub rtt_ns: u64,
    /// A search with one-sided reads.
    pub one_sided_ns: u64,
    /// `m`: reads that a search needs, in thousandths.
    pub reads_thousandths: u32,
    /// The part of the searches that the rule gives the server, in millionths.
    pub share_millionths: Option<u32>,
}

/// A report: of one connection, over one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientReport<'a> {
    /// Names the client among all.
    pub client: u64,
    /// Revision of the settings that it has from the cluster; 0: none.
    pub settings_revision: u64,
    /// Length of the interval, nanoseconds.
    pub interval_ns: u64,
    /// What it knows.
    pub estimates: ClientEstimates,
    /// Operations that it has in hand.
    pub in_hand: u32,
    /// What it talks over.
    pub transport: ReportTransport,
    /// By which rule it decides.
    pub policy: ReportPolicy,
    /// What it has counted in the interval.
    pub counts: ClientCounts,
    /// How often it has read which meganodes one-sidedly since its last report.
    pub reported_reads: ReportedReads<'a>,
    /// One-sided reads of meganodes for which it had no room.
    pub reads_elsewhere: u64,
    /// What it calls itself.
    pub name: &'a str,
}

impl<'a> ClientReport<'a> {
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let ClientEstimates { server_ns, read_ns, rtt_ns, one_sided_ns, .. } = self.estimates;
        let words = [self.client, self.settings_revision, self.interval_ns, server_ns, read_ns, rtt_ns];
        words.into_iter().chain([one_sided_ns]).try_for_each(|word| writer.u64(word))?;
        writer.u32(self.estimates.reads_thousandths)?;
        let share = self.estimates.share_millionths.map(|share| share.min(SHARE_MILLIONTHS_MAX));
        writer.u32(share.unwrap_or(SHARE_UNKNOWN))?;
        writer.u32(self.in_hand)?;
        writer.u8(self.transport.code())?;
        writer.u8(self.policy.code())?;
        writer.text_length(self.name.as_bytes(), NAME_BYTES_MAX)?;
        self.counts.to_array().into_iter().try_for_each(|count| writer.u64(count))?;
        writer.u16(self.reported_reads.count()?)?;
        writer.reserved(6)?;
        writer.u64(self.reads_elsewhere)?;
        writer.bytes(self.name.as_bytes())?;
        self.reported_reads.encode(writer)
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<ClientReport<'a>, DecodeError> {
        let (client, settings_revision, interval_ns) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (server_ns, read_ns) = (reader.u64()?, reader.u64()?);
        let (rtt_ns, one_sided_ns) = (reader.u64()?, reader.u64()?);
        let (reads_thousandths, share) = (reader.u32()?, reader.u32()?);
        if share > SHARE_MILLIONTHS_MAX && share != SHARE_UNKNOWN {
            return Err(reader.bad_tag(share));
        }
        let in_hand = reader.u32()?;
        let code = reader.u8()?;
        let transport = ReportTransport::from_code(code).ok_or_else(|| reader.bad_tag(code))?;
        let code = reader.u8()?;
        let policy = ReportPolicy::from_code(code).ok_or_else(|| reader.bad_tag(code))?;
        let name_len = reader.u16()?;
        let mut counts = [0; ClientCounts::COUNT];
        for count in &mut counts {
            *count = reader.u64()?;
        }
        let meganodes = reader.u16()?;
        reader.reserved(6)?;
        let reads_elsewhere = reader.u64()?;
        let name = reader.text(name_len, NAME_BYTES_MAX)?;
        let reported_reads = ReportedReads::decode(reader, meganodes)?;
        let estimates = ClientEstimates {
            server_ns,
            read_ns,
            rtt_ns,
            one_sided_ns,
            reads_thousandths,
            share_millionths: (share != SHARE_UNKNOWN).then_some(share),
        };
        Ok(ClientReport {
            client,
            settings_revision,
            interval_ns,
            estimates,
            in_hand,
            transport,
            policy,
            counts: ClientCounts::from_array(counts),
            reported_reads,
            reads_elsewhere,
            name,
        })
    }
}

/// The answer to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientReportReply<'a> {
    /// Revision of the cluster's settings for clients; 0: none.
    pub settings_revision: u64,
    /// All values of that revision that the cluster sets, as people write them; of those that the client's
    /// own revision has, none.
    pub values: SettingValues<'a>,
}

/// The values of a reply, checked: those that arrived, or those to be sent.
#[derive(Clone, Copy, Debug)]
pub enum SettingValues<'a> {
    /// Still as they arrived.
    Wire(
        /// Checked values.
        WireSettingValues<'a>,
    ),
    /// To be sent: name and value.
    List(&'a [(&'a str, &'a str)]),
}

/// Encoded values that were checked on arrival.
#[derive(Clone, Copy, Debug)]
pub struct WireSettingValues<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> SettingValues<'a> {
    /// Those from the first on that one reply has room for; who gets fewer than there are has to do
    /// without the rest.
    #[must_use]
    pub fn fitting(list: &'a [(&'a str, &'a str)]) -> SettingValues<'a> {
        let mut room = MESSAGE_BYTES_MAX - REPLY_HEADER_BYTES - REPLY_FIXED_BYTES;
        let fits = |&&(name, value): &&(&str, &str)| {
            let bytes = VALUE_FIXED_BYTES + name.len() + value.len();
            let fits = bytes <= room
                && name.len() <= SETTING_NAME_BYTES_MAX
                && value.len() <= SETTING_VALUE_BYTES_MAX;
            room = room.saturating_sub(bytes);
            fits
        };
        SettingValues::List(&list[..list.iter().take_while(fits).count()])
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            SettingValues::Wire(wire) => wire.count,
            SettingValues::List(list) => list.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let (wire, list): (&'a [u8], &'a [(&'a str, &'a str)]) = match *self {
            SettingValues::Wire(WireSettingValues { bytes, .. }) => (bytes, &[]),
            SettingValues::List(list) => (&[], list),
        };
        let mut reader = Reader::new(wire);
        let decoded =
            std::iter::from_fn(
                move || {
                    if reader.rest().is_empty() { None } else { decode_value(&mut reader).ok() }
                },
            );
        decoded.chain(list.iter().copied())
    }
}

impl PartialEq for SettingValues<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for SettingValues<'_> {}

fn decode_value<'a>(reader: &mut Reader<'a>) -> Result<(&'a str, &'a str), DecodeError> {
    let (name_len, value_len) = (reader.u16()?, reader.u16()?);
    Ok((reader.text(name_len, SETTING_NAME_BYTES_MAX)?, reader.text(value_len, SETTING_VALUE_BYTES_MAX)?))
}

impl<'a> ClientReportReply<'a> {
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let count = self.values.len();
        let short =
            u16::try_from(count).map_err(|_| EncodeError::Count { count, max: usize::from(u16::MAX) });
        writer.u64(self.settings_revision)?;
        writer.u16(short?)?;
        writer.reserved(6)?;
        self.values.iter().try_for_each(|(name, value)| {
            writer.text_length(name.as_bytes(), SETTING_NAME_BYTES_MAX)?;
            writer.text_length(value.as_bytes(), SETTING_VALUE_BYTES_MAX)?;
            writer.bytes(name.as_bytes())?;
            writer.bytes(value.as_bytes())
        })
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<ClientReportReply<'a>, DecodeError> {
        let (settings_revision, count) = (reader.u64()?, reader.u16()?);
        reader.reserved(6)?;
        let (rest, begin) = (reader.rest(), reader.at());
        for _ in 0..count {
            decode_value(reader)?;
        }
        let bytes = &rest[..reader.at() - begin];
        let values = SettingValues::Wire(WireSettingValues { bytes, count: usize::from(count) });
        Ok(ClientReportReply { settings_revision, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_and_add_are_inverse() {
        let mut earlier = ClientCounts::from_array(std::array::from_fn(|at| at as u64));
        let later = ClientCounts::from_array(std::array::from_fn(|at| 10 + 2 * at as u64));
        let since = later.since(&earlier);
        assert_eq!((since.server, since.fallbacks), (10, 10 + ClientCounts::COUNT as u64 - 1));
        earlier.add(&since);
        assert_eq!(earlier, later);
        assert_eq!(later.searches(), 10 + 12);
    }

    #[test]
    fn fitting_of_more_than_a_message_holds_is_what_fits() {
        let value = "v".repeat(SETTING_VALUE_BYTES_MAX);
        let list: Vec<_> = (0..40).map(|_| ("name", value.as_str())).collect();
        let values = SettingValues::fitting(&list);
        assert!((10..40).contains(&values.len()), "{}", values.len());
        let reply = crate::Reply::Reported(ClientReportReply { settings_revision: 1, values });
        let mut message = Vec::new();
        assert_eq!(reply.encode(&crate::ReplyHeader::default(), &mut message), Ok(()));
        let long = "v".repeat(SETTING_VALUE_BYTES_MAX + 1);
        assert!(SettingValues::fitting(&[("name", &long)]).is_empty());
    }
}
