//! One-sided reads on the simulated network, as a network card might serve them.
//!
//! The host's "card" serves them, not its endpoints: a paused core's memory stays readable. The words of a
//! read are loaded at several moments between its first and its last, in cache lines that fall on the moments
//! at random (in address order where the options say so), and sometimes word by word; the owner may write
//! between two moments. A direction that is blocked holds requests and answers back until it heals.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cell_memory::Region;
use cell_terms::{WORDS_PER_LINE, Words};

use crate::endpoint::ConnectionId;
use crate::error::{FabricError, SendError};
use crate::mapped::{MappedRegion, Word};
use crate::one_sided::OneSided;
use crate::remote_access::{
    READS_MAX, ReadFailure, ReadTag, RegionAccess, RegionKey, RemoteAccess, RemoteRead,
};

use super::endpoint::SimEndpoint;
use super::link::{Arrival, LinkId, Side};
use super::network::{NetworkState, chance, span};
use super::read_state::{Completed, Dealt, Posted, Read, ReadId, Registration};
use super::schedule::Due;

const MOMENTS_MAX: u64 = 4;

impl OneSided for SimEndpoint {
    fn register_for(&mut self, region: &Region, access: RegionAccess) -> Result<RegionKey, FabricError> {
        if access != RegionAccess::Read {
            return Err(FabricError::AccessUnavailable);
        }
        let mut state = self.network.lock();
        let host = state.endpoints[self.endpoint].host;
        if !state.endpoints[self.endpoint].alive {
            return Err(FabricError::OneSidedUnavailable);
        }
        let key = RegionKey(state.random.next());
        state
            .reads
            .registered
            .insert(key, Registration { host, region: region.clone(), ended: Arc::default() });
        Ok(key)
    }

    fn deregister(&mut self, key: RegionKey) {
        let mut state = self.network.lock();
        let host = state.endpoints[self.endpoint].host;
        if state.reads.registered.get(&key).is_some_and(|registration| registration.host == host) {
            let ended = state.reads.registered.remove(&key).map(|registration| registration.ended);
            ended.inspect(|ended| ended.store(true, Ordering::Release));
        }
    }

    fn post(
        &mut self,
        connection: ConnectionId,
        access: RemoteAccess<'_>,
        tag: ReadTag,
    ) -> Result<(), SendError> {
        let mut state = self.network.lock();
        let (link, side) = state.end_of(self.endpoint, connection).ok_or(SendError::Closed)?;
        let end = &mut link.ends[side];
        if end.ended {
            return Err(SendError::Closed);
        }
        if end.reads >= READS_MAX {
            end.full = true;
            return Err(SendError::Full);
        }
        end.reads += 1;
        let endpoint = &mut state.endpoints[self.endpoint];
        endpoint.counters.reads_posted += 1;
        let (read, refusal) = (access.range(), access.refusal());
        endpoint.posted.push(Posted { connection, read, refusal, tag });
        Ok(())
    }

    fn mapped(&self, connection: ConnectionId, key: RegionKey) -> Option<MappedRegion> {
        let mut state = self.network.lock();
        let (link, side) = state.end_of(self.endpoint, connection)?;
        let (host, was_read) = (link.ends[1 - side].host, link.ends[side].keys_read.contains(&key));
        let found = state.reads.registered.get(&key).filter(|registration| registration.host == host)?;
        let word = Word::Local(Arc::clone(&found.ended));
        let is_mapped = state.options.reads_mapped && was_read;
        is_mapped.then(|| MappedRegion::new(found.region.clone(), word))
    }

    fn reads_ordered(&self) -> bool {
        self.network.lock().options.reads_ordered
    }
}

impl NetworkState {
    /// Sends what was posted on its way.
    pub(super) fn flush_reads(&mut self, endpoint: usize) {
        for posted in std::mem::take(&mut self.endpoints[endpoint].posted) {
            let Some((link, side)) = self.endpoints[endpoint].connections.get(&posted.connection).copied()
            else {
                continue;
            };
            let Some(ends) = self.links.get(&link).map(|link| &link.ends) else { continue };
            let hosts = (ends[side].host, ends[1 - side].host);
            self.reads.started += 1;
            let id = self.reads.started;
            let failure = if side == 1 {
                Some(ReadFailure::Unsupported)
            } else if !posted.read.fits(u64::MAX) {
                Some(ReadFailure::RangeInvalid)
            } else {
                posted.refusal
            };
            let (words, dealt) = (Vec::new(), Dealt::default());
            let read = Read { endpoint, posted, link, side, hosts, words, dealt, failure };
            self.reads.under_way.insert(id, read);
            self.plan(if failure.is_some() { Due::ReadBack(id) } else { Due::ReadStarted(id) });
        }
    }

    /// The request is at the host: plans the moments at which its words are loaded.
    pub(super) fn read_started(&mut self, id: ReadId) {
        let Some(read) = self.reads.under_way.get(&id) else { return };
        if self.blocked.contains(&read.hosts) {
            self.reads.stalled.push((id, true));
            return;
        }
        let (host, count) = (read.hosts.1, words_of(&read.posted.read));
        let first = word_of(read.posted.read.offset);
        // A host that is dark answers nothing, nor does one where the connection's other end is gone.
        let served = self.links.get(&read.link).is_some_and(|link| link.ends[1 - read.side].held.is_some());
        if !served || !self.host_alive(host) {
            return;
        }
        if let Some(server) =
            self.endpoints.iter_mut().find(|endpoint| endpoint.host == host && endpoint.alive)
        {
            server.counters.reads_served += 1;
        }
        let dealt = self.deal(first, count);
        let mut times: Vec<u64> = (0..dealt.moments)
            .map(|_| self.now_ns + span(&mut self.random, 0, self.options.read_spread_ns))
            .collect();
        times.sort_unstable();
        for (moment, due_ns) in times.into_iter().enumerate() {
            self.plan_at(due_ns, Due::ReadMoment(id, moment));
        }
        if let Some(read) = self.reads.under_way.get_mut(&id) {
            read.words = vec![0; count];
            read.dealt = dealt;
        }
    }

    /// Deals the words of a read out to moments.
    fn deal(&mut self, first: usize, count: usize) -> Dealt {
        let torn = chance(&mut self.random, self.options.read_torn_per_million);
        let per_unit = if torn { 1 } else { WORDS_PER_LINE };
        let unit_of = |word: usize| (first + word) / per_unit - first / per_unit;
        let units = unit_of(count - 1) + 1;
        let moments = usize::try_from(self.random.between(1, MOMENTS_MAX)).unwrap_or(1);
        let mut units: Vec<usize> = (0..units).map(|_| self.random.index(moments)).collect();
        if self.options.reads_ordered {
            units.sort_unstable();
        }
        Dealt { first, per_unit, moments, units }
    }

    /// Loads the words of one moment; the last one sends the answer.
    pub(super) fn read_moment(&mut self, id: ReadId, moment: usize) {
        let Some(read) = self.reads.under_way.get_mut(&id) else { return };
        let registration = self.reads.registered.get(&read.posted.read.key);
        match registration.filter(|registration| registration.host == read.hosts.1) {
            None => read.failure = Some(ReadFailure::KeyUnknown),
            Some(Registration { region, .. }) => {
                if read.posted.read.fits(region.len() as u64 * 8) {
                    let first = word_of(read.posted.read.offset);
                    for word in read.dealt.words(moment, read.words.len()) {
                        read.words[word] = region.load(first + word);
                    }
                } else {
                    read.failure = Some(ReadFailure::RangeInvalid);
                }
            }
        }
        let (last, weight) = (moment + 1 == read.dealt.moments, read.words.len() as u64);
        self.note(id, (7 << 32) | weight);
        if last {
            self.plan(Due::ReadBack(id));
        }
    }

    /// The answer is back at the reader.
    pub(super) fn read_back(&mut self, id: ReadId) {
        let Some(read) = self.reads.under_way.get(&id) else { return };
        let (reader, host) = read.hosts;
        if self.blocked.contains(&(host, reader)) {
            self.reads.stalled.push((id, false));
            return;
        }
        let Some(Read { endpoint, posted, link, side, words, failure, .. }) =
            self.reads.under_way.remove(&id)
        else {
            return;
        };
        let outcome = match failure {
            None => Ok(words),
            Some(failure) => Err(failure),
        };
        let key_read = outcome.is_ok().then_some(posted.read.key);
        self.complete(endpoint, &posted, outcome);
        let Some(end) = self.links.get_mut(&link).map(|link| &mut link.ends[side]) else { return };
        end.keys_read.extend(key_read);
        end.reads = end.reads.saturating_sub(1);
        if end.full && end.reads <= READS_MAX / 2 {
            end.full = false;
            self.report(link, side, Arrival::Writable);
        }
    }

    fn complete(&mut self, endpoint: usize, posted: &Posted, outcome: Result<Vec<u64>, ReadFailure>) {
        let endpoint = &mut self.endpoints[endpoint];
        match outcome {
            Ok(_) => endpoint.counters.reads_done += 1,
            Err(_) => endpoint.counters.reads_failed += 1,
        }
        let Posted { connection, tag, .. } = *posted;
        endpoint.completed.push_back(Completed { connection, tag, outcome });
    }

    /// The end learns that its connection is over: so are its reads.
    pub(super) fn fail_reads(&mut self, id: LinkId, side: Side) {
        let Some((endpoint, connection)) = self.links.get(&id).and_then(|link| link.ends[side].held) else {
            return;
        };
        for posted in self.forget_reads(endpoint, Some(connection)) {
            self.complete(endpoint, &posted, Err(ReadFailure::ConnectionClosed));
        }
    }

    /// Takes out the reads of an endpoint, or of one connection of it.
    pub(super) fn forget_reads(&mut self, endpoint: usize, connection: Option<ConnectionId>) -> Vec<Posted> {
        let chosen = |posted: &Posted| connection.is_none_or(|connection| posted.connection == connection);
        let gone =
            self.reads.under_way.extract_if(.., |_, read| read.endpoint == endpoint && chosen(&read.posted));
        let mut gone: Vec<Posted> = gone.map(|(_, read)| read.posted).collect();
        gone.extend(self.endpoints[endpoint].posted.extract_if(.., |posted| chosen(posted)));
        gone
    }

    /// A direction healed: what it held back goes on.
    pub(super) fn resume_reads(&mut self, from: u32, to: u32) {
        for (id, outbound) in std::mem::take(&mut self.reads.stalled) {
            let Some(read) = self.reads.under_way.get(&id) else { continue };
            let (reader, host) = read.hosts;
            if (if outbound { (reader, host) } else { (host, reader) }) == (from, to) {
                self.plan(if outbound { Due::ReadStarted(id) } else { Due::ReadBack(id) });
            } else {
                self.reads.stalled.push((id, outbound));
            }
        }
    }

    /// A process is gone, and its registrations with it.
    pub(super) fn end_registrations(&mut self, host: u32) {
        self.reads.registered.retain(|_, registration| registration.host != host);
    }
}

fn words_of(read: &RemoteRead) -> usize {
    usize::try_from(read.length / 8).unwrap_or(0)
}

fn word_of(offset: u64) -> usize {
    usize::try_from(offset / 8).unwrap_or(usize::MAX)
}
