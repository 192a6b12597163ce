//! A server's network card: two engines in a row. *Processing* handles requests, and takes a message far
//! longer than a read; *memory* fetches what is sent, and takes 1 KB longer the larger the area is that it is
//! read from. Both serve in the order of arrival. A card that has more connections than it can keep the state
//! of takes longer to process each request.

/// The times of one card, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Card {
    /// Processing of a message, there and back.
    pub message_processing_ns: f64,
    /// Memory's time for one.
    pub message_memory_ns: f64,
    /// Processing of a read.
    pub read_processing_ns: f64,
    /// Memory's time for a read over 1 GB.
    pub read_memory_ns: f64,
    /// What each request's processing takes besides, for want of room for connections' state.
    pub state_ns: f64,
}

impl Card {
    /// From what it does alone of reads, alone of messages, and of both together, in millions a second.
    ///
    /// Alone, a message is limited by processing and a read by memory. `payload` is what a message carries,
    /// as a part of what a read does. Together both engines are busy all the time, which leaves one unknown,
    /// a read's processing.
    #[must_use]
    pub fn of_rates(reads: f64, messages: f64, both: f64, payload: f64) -> Card {
        let (read_memory, message_processing) = (1.0 / reads, 1.0 / messages);
        let message_memory = payload * read_memory;
        // reads' = (1 - message_memory * messages') / read_memory, reads' + messages' = both
        let messages_of_both = (both - reads) / (1.0 - payload);
        let reads_of_both = both - messages_of_both;
        let read_processing = (1.0 - message_processing * messages_of_both) / reads_of_both;
        Card {
            message_processing_ns: 1e3 * message_processing,
            message_memory_ns: 1e3 * message_memory,
            read_processing_ns: 1e3 * read_processing.clamp(0.0, read_memory),
            read_memory_ns: 1e3 * read_memory,
            state_ns: 0.0,
        }
    }

    /// Between two cards, so far from the first to the second.
    #[must_use]
    pub fn between(one: &Card, other: &Card, part: f64) -> Card {
        let mix = |one: f64, other: f64| one + part * (other - one);
        Card {
            message_processing_ns: mix(one.message_processing_ns, other.message_processing_ns),
            message_memory_ns: mix(one.message_memory_ns, other.message_memory_ns),
            read_processing_ns: mix(one.read_processing_ns, other.read_processing_ns),
            read_memory_ns: mix(one.read_memory_ns, other.read_memory_ns),
            state_ns: mix(one.state_ns, other.state_ns),
        }
    }
}

/// A station serves in the order of arrival: when it is free, and how long it has worked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Station {
    free_ns: f64,
    pub(crate) busy_ns: f64,
}

impl Station {
    /// The end of the service.
    pub(crate) fn serve(&mut self, now_ns: f64, service_ns: f64) -> f64 {
        self.busy_ns += service_ns;
        self.free_ns = self.free_ns.max(now_ns) + service_ns;
        self.free_ns
    }
}

/// A card at work. What leaves processing arrives at memory in the same order, so both are served at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CardQueue {
    pub(crate) processing: Station,
    pub(crate) memory: Station,
}

impl CardQueue {
    /// When a message has gone through.
    pub(crate) fn message(&mut self, card: &Card, now_ns: f64) -> f64 {
        let processed_ns = self.processing.serve(now_ns, card.message_processing_ns + card.state_ns);
        self.memory.serve(processed_ns, card.message_memory_ns)
    }

    /// When a read has gone through; `area` is its memory time as a part of that over 1 GB.
    pub(crate) fn read(&mut self, card: &Card, now_ns: f64, area: f64) -> f64 {
        let processed_ns = self.processing.serve(now_ns, card.read_processing_ns + card.state_ns);
        self.memory.serve(processed_ns, area * card.read_memory_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_rates_is_a_card_that_has_these_rates() {
        let card = Card::of_rates(1.0, 0.75, 1.5, 0.125);
        assert!((card.read_memory_ns - 1000.0).abs() < 1e-9);
        assert!((card.message_processing_ns - 1333.3).abs() < 0.1);
        let messages = 0.5 / 0.875;
        let reads = 1.5 - messages;
        let processing = reads * card.read_processing_ns + messages * card.message_processing_ns;
        let memory = reads * card.read_memory_ns + messages * card.message_memory_ns;
        assert!(
            (processing - 1000.0).abs() < 1e-6 && (memory - 1000.0).abs() < 1e-6,
            "{processing} {memory}"
        );
    }

    #[test]
    fn queue_serves_in_the_order_of_arrival() {
        let card = Card::of_rates(1.0, 0.5, 1.2, 0.1);
        let mut queue = CardQueue::default();
        let first_ns = queue.read(&card, 0.0, 1.0);
        let second_ns = queue.read(&card, 0.0, 1.0);
        assert!((second_ns - first_ns - card.read_memory_ns).abs() < 1e-9);
        let late_ns = queue.message(&card, 1e6);
        assert!((late_ns - 1e6 - card.message_processing_ns - card.message_memory_ns).abs() < 1e-6);
    }
}
