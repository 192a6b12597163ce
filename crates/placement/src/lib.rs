//! Which pair moves next, where to, and why; or why nothing moves.
//!
//! A pure core. What is known of the cluster goes in as [`Figures`], with the time at which it is looked at;
//! one [`NextStep`] with its reason comes out. There is no clock, no I/O, no thread, no chance. Whoever has
//! the balancer's row in the coordinator keeps one [`Balancer`], asks it about once a second and after each
//! move, and carries out what it says.
//!
//! | question | answered by |
//! |---|---|
//! | What is to be done now? What keeps a drain from going on? | [`Balancer::look`] |
//! | The same without consequences, with how each node stands | [`Balancer::explain`] |
//! | Why does this pair not move? | [`Balancer::explain_pair`] |
//! | Can these nodes be emptied, and where would their pairs go? | [`Balancer::drain_plan`] |
//! | A meganode splits: where does the pair go that is made for it? | [`fresh_place`] |
//! | Are a node's pairs too large to move? | [`has_to_divide`] |
//! | How much memory can a full node get back by a move? | [`relief_bytes`] |
//! | Is it to split early, because there are few? | [`BalanceRules::slot_part`] |
//!
//! What holds, whatever the figures are:
//!
//! - At most one move is under way in the cluster. None begins while somebody is to take a pair over.
//! - Drains go first. A drain ends what balance began, and while a node drains nothing else moves pairs, but
//!   for a node at which puts find no memory: it gives one while none of a drain can move.
//! - Balance decides nothing on figures that it only half knows.
//! - A move of balance makes the worse of its two ends better, and no target worse than the tolerance allows.
//!   A pair that was moved rests. A node that took a pair gives none for a while, and the other way round.
//!   Where puts find no memory, a pair leaves at once, whatever rests. Balance gives that node none for as
//!   long as pairs rest.
//! - No target gets more than its memory and its number of pairs permit.
//! - A drain that its plan permits can be carried out, while pairs grow by an eighth and others take no more.
//!
//! `docs/design/balance.md` gives the rules in full.

mod balancer;
mod drain;
mod explanation;
mod figures;
mod fresh;
mod history;
mod obstacle;
mod reason;
mod relief;
mod rules;
mod search;
mod survey;
mod targets;
mod words;

pub use balancer::{Advice, Balancer};
pub use drain::{DrainPlan, DrainRefusal};
pub use explanation::{Explanation, NodeStanding, PairStanding};
pub use figures::{
    Arrival, BalancePause, Figures, HeldPair, MemberFigures, MemberState, MoveCause, MoveUnderWay, PairHold,
    PairLoad,
};
pub use fresh::{FreshPlace, FreshReason, FreshSplit, fresh_fits, fresh_place, has_to_divide};
pub use obstacle::{DrainStall, MoveFailure, NoTarget, PairObstacle};
pub use reason::{
    CancelReason, GaveNothing, HalfKnown, Measure, MoveReason, NextStep, NoRelief, PlannedMove, RestReason,
};
pub use relief::relief_bytes;
pub use rules::{BalanceRules, RulesError};
