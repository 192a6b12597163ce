//! The faults of `faults`, carried out; and what ends those that last.

use cell_cluster::{Away, Fault as CallFault};
use cell_fabric::SimOptions;
use cell_wal::Errno;

use crate::check;
use crate::client::Client;
use crate::coverage::Event;
use crate::death::Death;
use crate::faults::{AwayOnce, Fault, Undo};
use crate::node::Node;
use crate::phase::RunPhase;
use crate::plan::MS;
use crate::world::{World, say};

/// More calls than a node makes before its lease ends.
const CALLS_UNANSWERED: usize = 2_000;

impl World {
    /// A fault happens; false if there is no process to inject it into.
    pub(crate) fn inject(&mut self, fault: Fault) -> bool {
        let victim = self.victim();
        match fault {
            Fault::PowerCut => self.power_cut(),
            Fault::StopAll => self.stop_all(),
            Fault::PowerInOperation
            | Fault::WriteError
            | Fault::SyncError
            | Fault::ReadError
            | Fault::DiskFull
            | Fault::DiskSlow => self.disturb_disk(fault),
            Fault::CoordinatorPower => self.cut_coordinator(),
            Fault::Reset | Fault::Partition | Fault::Stall | Fault::Storm => self.disturb_network(fault),
            Fault::CoordinatorStill => {
                let lasts_ns = self.random.pick(&[100, 100, 500, 500, 1_500, 1_500, 5_000, 30_000]) * MS;
                self.still_coordinator(lasts_ns);
            }
            Fault::CoordinatorFaults | Fault::CoordinatorCut | Fault::CoordinatorRestart => {
                self.disturb_coordinator(fault);
            }
            Fault::ClientStall => self.stall_client(),
            Fault::ClientRestart => self.restart_client(),
            Fault::ClientPause => self.pause_client(),
            Fault::Lull => self.lull(),
            Fault::Unmounted => return victim.is_some_and(|host| self.unmount(host)),
            Fault::Drain => return victim.is_some_and(|host| self.drain(host)),
            Fault::Undrain => return self.undrain(),
            Fault::Join => return self.let_join(),
            Fault::Remove => return self.remove_node(),
            Fault::Kill
            | Fault::Dark
            | Fault::Isolation
            | Fault::DieAtTouch
            | Fault::DieInCheckpoint
            | Fault::Stop
            | Fault::DiskHang
            | Fault::WorkerStall
            | Fault::Pause
            | Fault::PausePastLease
            | Fault::Leave
            | Fault::Move
            | Fault::TableLate => {
                let Some(host) = victim else { return false };
                self.disturb_process(fault, host);
            }
        }
        true
    }

    /// A fault of one process.
    fn disturb_process(&mut self, fault: Fault, host: u32) {
        match fault {
            Fault::Kill => {
                self.coverage.saw(Event::Kills);
                self.remove_process(host, Death::Killed);
            }
            Fault::Dark => {
                self.coverage.saw(Event::Dark);
                self.remove_process(host, Death::Dark);
            }
            Fault::Isolation => self.isolate(host),
            Fault::DiskHang => self.hang_disk(host),
            Fault::WorkerStall => self.stall_worker(host),
            Fault::Pause | Fault::PausePastLease => self.pause(fault, host),
            Fault::TableLate => self.delay_table(host),
            Fault::Leave => self.let_leave(host),
            Fault::Move => self.let_move(host),
            _ => self.end_node(fault, host),
        }
    }

    /// A fault of the disk.
    fn disturb_disk(&mut self, fault: Fault) {
        match fault {
            Fault::WriteError => {
                self.coverage.saw(Event::WriteErrors);
                let writes = self.random.below(20);
                self.disk.arm_write_error(writes, Errno::EIO);
            }
            Fault::SyncError => {
                self.coverage.saw(Event::SyncErrors);
                let syncs = self.random.below(20);
                self.disk.arm_sync_error(syncs, Errno::EIO);
            }
            Fault::ReadError => {
                self.coverage.saw(Event::ReadErrors);
                let reads = self.random.below(10);
                self.disk.arm_read_error(reads, Errno::EIO);
            }
            Fault::DiskFull => {
                self.coverage.saw(Event::DiskFull);
                let room = self.random.below(3 * self.plan.log.segment_bytes);
                self.disk.set_capacity(Some(self.disk.used() + room));
                let lasts_ns = self.random.time_ns(100 * MS);
                self.later(lasts_ns, Undo::Room);
            }
            Fault::DiskSlow => {
                self.coverage.saw(Event::DiskSlow);
                self.disk_slow_until_ns = self.now_ns + self.random.time_ns(50 * MS);
            }
            _ => {
                let operations = self.random.below(30);
                self.disk.arm_power_cut(operations);
            }
        }
    }

    /// A host loses its log root, unless one has.
    fn unmount(&mut self, host: u32) -> bool {
        if self.operators.unmounted.is_some() || !self.plan.may_unmount() {
            return false;
        }
        self.coverage.saw(Event::Unmounted);
        self.operators.unmounted = Some(host);
        self.node_at(host).into_iter().for_each(|node| node.is_unmounted = true);
        true
    }

    /// One of a host's pairs is to leave it.
    fn let_leave(&mut self, host: u32) {
        let Some(node) = self.node_at(host) else { return };
        let pairs: Vec<_> = node.ownerships().map(|ownership| ownership.pair).collect();
        if !pairs.is_empty() {
            let pair = self.random.pick(&pairs);
            self.node_at(host).into_iter().for_each(|node| node.let_leave(pair));
        }
    }

    /// Every process ends, and nobody starts one for a while.
    fn stop_all(&mut self) {
        self.coverage.saw(Event::AllStopped);
        self.end_lives();
        let rest_ns = self.random.between(0, 3 * self.plan.lease_ns());
        self.operators.rest(self.now_ns + rest_ns);
    }

    /// Clients ask nothing for a while.
    fn lull(&mut self) {
        self.coverage.saw(Event::Lulls);
        let lasts_ns = self.random.between(100 * MS, 12_000 * MS);
        let until_ns = self.now_ns + lasts_ns;
        self.asks_due_ns.iter_mut().for_each(|due_ns| *due_ns = (*due_ns).max(until_ns));
        if self.random.percent(70) {
            self.faults.hold(until_ns);
        }
        if self.random.percent(50) {
            self.restart_client(); // whose session will end of silence
        }
    }

    /// One of the processes.
    pub(crate) fn victim(&mut self) -> Option<u32> {
        let hosts: Vec<u32> = self.nodes.iter().map(|node| node.host).collect();
        match hosts.as_slice() {
            [] => None,
            [host] => Some(*host),
            hosts => Some(self.random.pick(hosts)),
        }
    }

    fn node_at(&mut self, host: u32) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|node| node.host == host).map(AsMut::as_mut)
    }

    fn end_node(&mut self, fault: Fault, host: u32) {
        let touches = self.random.below(60);
        let (after, checkpoint) = (self.random.percent(50), self.random.percent(50));
        let Some(node) = self.node_at(host) else { return };
        match fault {
            Fault::DieAtTouch => node.fuse.light(touches, after),
            Fault::DieInCheckpoint => node.die_in_checkpoint(touches % 20, after),
            _ => node.stop(checkpoint),
        }
    }

    fn pause(&mut self, fault: Fault, host: u32) {
        let lease_ns = self.plan.lease_ns();
        let past = fault == Fault::PausePastLease;
        let lasts_ns = if past {
            self.random.between(lease_ns, 4 * lease_ns)
        } else {
            self.random.time_ns(lease_ns / 8)
        };
        self.coverage.saw(Event::Pauses);
        let until_ns = self.now_ns + lasts_ns;
        if let Some(node) = self.node_at(host) {
            node.freeze(until_ns, past);
        }
    }

    /// Nothing of what the process asks of its disk comes back any more, until the operator has seen that.
    fn hang_disk(&mut self, host: u32) {
        self.coverage.saw(Event::DiskHung);
        let lease_ns = self.plan.lease_ns();
        let seen_after_ns = self.random.between(lease_ns / 4, 6 * lease_ns);
        self.node_at(host).into_iter().for_each(Node::hang_disk);
        self.later(seen_after_ns, Undo::Unhang(host));
    }

    fn stall_worker(&mut self, host: u32) {
        let grace_ns = self.plan.worker.pair.reuse_grace_ns;
        let lasts_ns = self.random.between(grace_ns / 2, 3 * grace_ns);
        self.node_at(host).into_iter().for_each(|node| node.stall_worker(lasts_ns));
    }

    fn stall_client(&mut self) {
        let (grace_ns, lease_ns) = (self.plan.worker.pair.reuse_grace_ns, self.plan.lease_ns());
        let number = self.random.index(self.clients.len());
        if self.random.percent(50) {
            let lasts_ns = self.random.between(grace_ns / 2, 4 * grace_ns);
            return self.clients[number].stall(lasts_ns);
        }
        // Every owner's lease ends meanwhile, and its memory stays as it is.
        let lasts_ns = self.random.between(2 * lease_ns, 5 * lease_ns);
        if self.random.percent(50) {
            self.clients[number].stall(lasts_ns);
        } else {
            self.clients[number].freeze(self.now_ns + lasts_ns);
        }
        if self.random.percent(70) {
            let until_ns = self.now_ns + 6 * lease_ns;
            self.nodes.iter_mut().for_each(|node| node.freeze(until_ns, true));
            self.faults.hold(until_ns);
        }
    }

    /// A node cannot send, or cannot receive, or both.
    fn isolate(&mut self, host: u32) {
        self.coverage.saw(Event::Isolations);
        let lease_ns = self.plan.lease_ns();
        let longest_ns = self.random.pick(&[lease_ns / 2, lease_ns, 6 * lease_ns]);
        let lasts_ns = self.random.between(MS, longest_ns);
        let ways = self.random.below(3);
        let others: Vec<u32> =
            self.clients.iter().map(|client| client.host).chain(self.plan.hosts()).collect();
        for other in others.into_iter().filter(|other| *other != host) {
            for (way, (from, to)) in [(other, host), (host, other)].into_iter().enumerate() {
                if ways == 2 || ways == way as u64 {
                    self.network.block(from, to);
                    self.later(lasts_ns, Undo::Unblock(from, to));
                }
            }
        }
        let Some(link) = self.node_at(host).map(|node| node.link.clone()) else { return };
        match ways {
            // It reaches the coordinator and does not get its answers.
            0 => {
                self.coverage.saw(Event::IsolationsIn);
                link.plan(std::iter::repeat_n(CallFault::AnswerLost, CALLS_UNANSWERED));
            }
            // What it asks is on its way for long.
            1 => {
                self.coverage.saw(Event::IsolationsOut);
                let calls = self.random.between(1, 100);
                link.plan(std::iter::repeat_n(CallFault::Delayed { calls }, CALLS_UNANSWERED));
            }
            _ => link.set_cut(true),
        }
        self.later(lasts_ns, Undo::MendOne(host));
        if lasts_ns > lease_ns {
            self.faults.hold(self.now_ns + lasts_ns / 2);
        }
    }

    fn disturb_network(&mut self, fault: Fault) {
        let client = self.clients[self.random.index(self.clients.len())].host;
        let host = self.victim().unwrap_or(1);
        match fault {
            Fault::Reset => {
                self.coverage.add(Event::Resets, u64::from(self.network.reset(client, host) > 0));
            }
            Fault::Partition => {
                self.coverage.saw(Event::Partitions);
                let lasts_ns = self.random.between(MS, 3 * self.plan.client.silence_ms * MS);
                let ways = self.random.below(3);
                if self.random.percent(50) {
                    self.faults.hold(self.now_ns + lasts_ns); // clients are to give up and come back
                }
                for (way, (from, to)) in [(client, host), (host, client)].into_iter().enumerate() {
                    if ways == 2 || ways == way as u64 {
                        self.network.block(from, to);
                        self.later(lasts_ns, Undo::Unblock(from, to));
                    }
                }
            }
            Fault::Stall => {
                let patience_ns = self.plan.client.silence_ms * MS;
                let lasts_ns = self.random.between(patience_ns, 4 * patience_ns);
                let stalled = self.network.stall(client, host, self.now_ns + lasts_ns);
                self.coverage.add(Event::Stalls, u64::from(stalled > 0));
                self.faults.hold(self.now_ns + lasts_ns);
            }
            _ => {
                self.coverage.saw(Event::Storms);
                self.network.set_options(SimOptions {
                    window_bytes: self.plan.network.window_bytes,
                    reset_per_million: 2_000,
                    ..SimOptions::hostile()
                });
                let lasts_ns = self.random.time_ns(30 * MS);
                self.later(lasts_ns, Undo::CalmNetwork);
            }
        }
    }

    fn disturb_coordinator(&mut self, fault: Fault) {
        const KINDS: [CallFault; 5] =
            [CallFault::None, CallFault::NotReached, CallFault::Lost, CallFault::AnswerLost, CallFault::Late];
        let host = self.victim();
        let link = host.and_then(|host| self.node_at(host)).map(|node| node.link.clone());
        match fault {
            Fault::CoordinatorRestart => {
                self.coverage.saw(Event::CoordinatorRestarts);
                self.coordinator.restart();
            }
            Fault::CoordinatorCut => {
                self.coverage.saw(Event::CoordinatorCuts);
                link.into_iter().for_each(|link| link.set_cut(true));
                let lasts_ns = self.random.time_ns(self.plan.lease.ttl_ms * MS / 4);
                self.later(lasts_ns, Undo::Mend);
            }
            _ => {
                self.coverage.saw(Event::CoordinatorFaults);
                let count = self.random.between(1, 12);
                let planned: Vec<CallFault> = (0..count)
                    .map(|_| match self.random.below(6) {
                        0 => CallFault::Delayed { calls: self.random.between(1, 40) },
                        _ => self.random.pick(&KINDS),
                    })
                    .collect();
                link.into_iter().for_each(|link| link.plan(planned.clone()));
            }
        }
    }

    /// The coordinator loses its power at once, or within the next call of some node.
    pub(crate) fn cut_coordinator(&mut self) {
        let within = self.random.percent(50);
        let durable = self.random.percent(50);
        let link = self.victim().and_then(|host| self.node_at(host)).map(|node| node.link.clone());
        match link.filter(|_| within) {
            Some(link) => link.plan([CallFault::PowerCut { durable }]),
            None => self.coordinator.cut_power(),
        }
    }

    /// The coordinator stands still for so long.
    pub(crate) fn still_coordinator(&mut self, lasts_ns: u64) {
        self.coverage.saw(Event::CoordinatorStill);
        self.coordinator.stand_still();
        self.later(lasts_ns, Undo::GoOn);
    }

    /// If the coordinator has lost its power, that comes back some time.
    pub(crate) fn step_coordinator(&mut self) {
        let is_out = !self.coordinator.is_powered();
        if is_out && !self.coordinator_is_out {
            say!(self, "the coordinator has no power");
            self.coverage.saw(Event::CoordinatorPower);
            let longest_ns = self.random.pick(&[self.plan.lease_ns() / 4, 3 * self.plan.lease_ns()]);
            let lasts_ns = self.random.between(1, longest_ns);
            self.later(lasts_ns, Undo::PowerOn);
        }
        self.coordinator_is_out = is_out;
        if let Some(AwayOnce { how, lasts_ns, .. }) = self.options.away
            && !self.was_away
            && self.coordinator.away_since_ns().is_some()
        {
            say!(self, "the coordinator is away: {how:?}");
            self.was_away = true;
            self.later(lasts_ns, if how == Away::Cut { Undo::Mend } else { Undo::GoOn });
        }
    }

    /// The next writes of a host's process to the region table are carried out late. Its caller tries again
    /// at once, and the late one is to find the row changed.
    pub(crate) fn delay_table(&mut self, host: u32) {
        let longest = self.random.pick(&[30, 300, 3_000]);
        let calls: Vec<u64> =
            (0..self.random.between(1, 4)).map(|_| self.random.between(1, longest)).collect();
        self.coverage.add(Event::TableLate, calls.len() as u64);
        self.node_at(host).into_iter().for_each(|node| node.coordinator.delay(calls.iter().copied()));
    }

    fn pause_client(&mut self) {
        self.coverage.saw(Event::ClientPauses);
        let number = self.random.index(self.clients.len());
        let grace_ns = self.plan.worker.pair.reuse_grace_ns;
        let longest_ns = self.random.pick(&[grace_ns / 4, 4 * grace_ns, 2 * self.plan.lease.ttl_ms * MS]);
        let lasts_ns = self.random.between(1, longest_ns.max(1));
        self.clients[number].freeze(self.now_ns + lasts_ns);
    }

    /// What a client's one-sided path has seen.
    pub(crate) fn count_one_sided(&mut self, number: usize) {
        let stalls = std::mem::take(&mut self.clients[number].stalls);
        self.coverage.add(Event::ClientStalls, stalls);
        let at_once = std::mem::take(&mut self.clients[number].answered_at_once);
        self.coverage.add(Event::AtOnce, at_once);
        let counters = self.clients[number].one_sided();
        for (event, count) in [
            (Event::OneSided, counters.done),
            (Event::InPlace, counters.in_place),
            (Event::FellBack, counters.fell_back),
            (Event::Torn, counters.torn),
            (Event::RightLinks, counters.right_link),
            (Event::StaleNodes, counters.invalid + counters.fence),
            (Event::ExtentsReused, counters.crc),
            (Event::WatermarkWaits, counters.watermark),
            (Event::TrustWaits, counters.trust),
            (Event::Overruns, counters.clock),
            (Event::KeysUnknown, counters.key_unknown),
        ] {
            self.coverage.add(event, count);
        }
    }

    fn restart_client(&mut self) {
        self.coverage.saw(Event::ClientRestarts);
        let number = self.random.index(self.clients.len());
        self.count_one_sided(number);
        self.network.crash(self.clients[number].host, cell_fabric::SimCrash::Process);
        let new = Client::new(&self.plan, number, &self.network, self.random.next());
        let old = std::mem::replace(&mut self.clients[number], new);
        for asked in old.end() {
            self.came_to_nothing(1);
            check::abandoned(&asked, &mut self.model, &mut self.coverage);
        }
    }

    /// Something that was put off.
    pub(crate) fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Inject(fault, number) if self.phase == RunPhase::Traffic && !self.healed => {
                say!(self, "fault {number}: {fault:?}");
                let is_moving = self.nodes.iter().any(|node| node.is_moving());
                if self.inject(fault) {
                    self.injected.push(number);
                    self.coverage.saw(Event::Faults);
                    if is_moving {
                        self.coverage.met_move(fault);
                    }
                }
            }
            Undo::Inject(..) => {}
            Undo::Room => self.disk.set_capacity(None),
            Undo::CalmNetwork => self.network.set_options(self.plan.network),
            Undo::Unblock(from, to) => self.network.unblock(from, to),
            Undo::Mend => self.nodes.iter().for_each(|node| node.link.mend()),
            Undo::MendOne(host) => {
                self.node_at(host).into_iter().for_each(|node| node.link.mend());
            }
            Undo::Restart(host) => self.remove_process(host, Death::Killed),
            Undo::PowerOn if self.coordinator.is_powered() => {}
            Undo::PowerOn => self.coordinator.power_on(),
            Undo::GoOn => self.coordinator.go_on(),
            Undo::Unhang(host) => {
                if self.node_at(host).is_some_and(|node| node.disk_hangs) {
                    self.remove_process(host, Death::Killed);
                }
            }
            Undo::LandLate => {
                let landed = self.disk.land_late();
                self.coverage.add(Event::LateWrites, u64::from(landed));
                if landed {
                    say!(self, "a write of a dead process lands");
                }
            }
        }
    }

    /// Ends all faults.
    pub(crate) fn heal(&mut self) {
        self.disk.set_capacity(None);
        self.disk.disarm();
        self.disk_slow_until_ns = 0;
        self.network.set_options(self.calm_network());
        self.network.heal();
        self.operators.fuse = None;
        let now_ns = self.now_ns;
        // What the options wish for lasts as long as they say.
        let wished = self.options.away.is_some();
        for node in &mut self.nodes {
            if !wished {
                node.link.mend();
            }
            node.coordinator.hurry();
            node.fuse.put_out();
            node.spare();
            node.serving.go_on();
            node.freeze(now_ns, false);
        }
        self.clients.iter_mut().for_each(|client| client.thaw(now_ns));
        if !self.coordinator.is_powered() {
            self.coordinator.power_on();
        }
        if !wished {
            self.coordinator.go_on();
        }
        let hung: Vec<u32> = self.nodes.iter().filter(|node| node.disk_hangs).map(|node| node.host).collect();
        hung.into_iter().for_each(|host| self.remove_process(host, Death::Killed));
        self.rest_balance();
    }
}
